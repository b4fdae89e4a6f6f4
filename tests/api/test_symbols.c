/* SPDX-License-Identifier: Apache-2.0 */
/* Two codecs in one process: this program exports functions with the names that libjpeg, zstd and
 * liburing have, all of which end it at once. The library must never come upon them. */
#define _GNU_SOURCE // mkdtemp
#include <stdio.h>
#include <unistd.h>

#include <feedline/feedline.h>

#include "t.h"

#define BOMB(name)                                                                                 \
    __attribute__((visibility("default"))) void name(void);                                        \
    void name(void)                                                                                \
    {                                                                                              \
        fputs("feedline called " #name " of the program\n", stderr);                               \
        _exit(1);                                                                                  \
    }

BOMB(jpeg_std_error)
BOMB(jpeg_CreateDecompress)
BOMB(jpeg_CreateCompress)
BOMB(jpeg_read_header)
BOMB(jpeg_start_decompress)
BOMB(jpeg_read_scanlines)
BOMB(jpeg_read_raw_data)
BOMB(jpeg_read_coefficients)
BOMB(jpeg_write_coefficients)
BOMB(jpeg_abort_decompress)
BOMB(jpeg_destroy_decompress)
BOMB(jpeg_mem_src)
BOMB(jpeg_mem_dest)
BOMB(jpeg_resync_to_restart)
BOMB(ZSTD_createDCtx)
BOMB(ZSTD_decompressStream)
BOMB(ZSTD_decompressDCtx)
BOMB(io_uring_queue_init_params)
BOMB(io_uring_submit)
BOMB(io_uring_register_buffers)

/* Every batch of one epoch. Returns the number of valid samples, or an error. */
static int64_t load(FlDataset *ds)
{
    const FlImage image = { .width = 32, .height = 32, .crop = FL_CROP_RANDOM_RESIZED };
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *loader = NULL;
    FlBatch batch = { 0 };
    int64_t valid = 0;
    int err;

    cfg.batch_size = 4;
    cfg.n_workers = 2;
    cfg.epochs = 1;
    if ((err = fl_config_image(&cfg, "jpg", &image)) < 0 ||
        (err = fl_loader_open(&loader, ds, &cfg)) < 0)
        return err;
    while ((err = fl_loader_next(loader, &batch, NULL)) == 0) {
        valid += batch.n_valid;
        fl_batch_release(&batch, NULL);
    }
    fl_loader_close(&loader);
    return err < 0 ? err : valid;
}

int main(void)
{
    char dir[] = "/tmp/fl_symbols_XXXXXX", command[512], path[64];
    const char *feedline = getenv("FEEDLINE");
    const FlShardOptions opt = { .struct_size = sizeof(opt) };
    FlDataset *photos = NULL, *shards = NULL;

    if (!feedline || !*feedline)
        T_SKIP("the command is not built");
    T_OK(mkdtemp(dir) != NULL);
    snprintf(command, sizeof(command),
             "'%s' synth %s/photos --count 10 --classes 2 --quiet >/dev/null", feedline, dir);
    T_EQ(system(command), 0);

    t_case("original JPEGs");
    snprintf(path, sizeof(path), "%s/photos", dir);
    T_EQ(fl_dataset_open(&photos, path, NULL), 0);
    T_EQ(load(photos), 10);

    t_case("sharded and sliced");
    snprintf(path, sizeof(path), "%s/shards", dir);
    T_EQ(fl_shard(photos, path, &opt, NULL), 0);
    T_EQ(fl_dataset_open(&shards, path, NULL), 0);
    T_EQ(load(shards), 10);

    fl_dataset_close(&shards);
    fl_dataset_close(&photos);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    T_EQ(system(command), 0);
    return t_done();
}
