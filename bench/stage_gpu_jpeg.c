/* SPDX-License-Identifier: Apache-2.0 */
/* GPU JPEG, the stage alone: sliced pictures in pinned memory become batches of bf16 NHWC pixels in
 * device memory.
 *
 *   stage_gpu_jpeg pack FOLDER FILE [N]   slice the first N JPEGs of a folder into one file
 *   stage_gpu_jpeg plain FOLDER FILE [N]  the same without slicing: decoded through entry points
 *   stage_gpu_jpeg cut FILE TO [N]        N random crops' slices as JPEGs of their own, for other decoders
 *   stage_gpu_jpeg check FILE [N]         decode N random crops on the GPU and on the CPU, compare all
 *   stage_gpu_jpeg damage FILE [N]        decode N damaged pictures (for compute-sanitizer)
 *   stage_gpu_jpeg time FILE [key=value] [-- ...]  images/s and stages: batch, threads, lanes, copy (1: engine,
 *                                         2: kernel), scatter (0, 1), grid, seconds, low (priority), rate;
 *                                         save=FILE: a list of JSON objects too
 *
 * Crops are RandomResizedCrop(224), as in training. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include <cuda_runtime_api.h>

#include "base/clock.h"
#include "crop.h"
#include "jpeg/decode.h"
#include "jpeg/direct.h"
#include "jpeg/upsampling.h"
#include "tests/unit/gpu_jpeg_case.h"

#define SIDE 224
#define CHECK(call)                                                                                \
    do {                                                                                           \
        const int rc_ = (int)(call);                                                               \
        if (rc_) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call, rc_,                  \
                    rc_ > 0 ? cudaGetErrorString((cudaError_t)rc_) : "");                          \
            exit(rc_ == cudaErrorNoDevice || rc_ == cudaErrorInsufficientDriver ? 77 : 1);         \
        }                                                                                          \
    } while (0)

#define ENTRIES 20000 // most of a picture

struct set {
    struct case_picture *pics;
    struct fl_entry_table *entries; // of pictures that are not sliced; points 0: of others
    struct fl_slice_parts *parts;   // header strings
    uint32_t n;
    uint8_t *bytes; // all files, pinned
    uint64_t size;
};

static void *need(size_t n)
{
    void *const p = calloc(1, n ? n : 1);

    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static uint8_t *slurp(const char *path, size_t *len)
{
    FILE *const f = fopen(path, "rb");

    if (!f || fseek(f, 0, SEEK_END)) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    *len = (size_t)ftell(f);
    rewind(f);
    uint8_t *const p = need(*len);
    if (fread(p, 1, *len, f) != *len)
        exit(1);
    fclose(f);
    return p;
}

static int pack(const char *folder, const char *to, uint32_t most, bool plain)
{
    struct fl_slicer *const slicer = fl_slicer_new();
    char **const names = need(100000 * sizeof(*names));
    size_t n = 0, len;
    DIR *const dir = opendir(folder);
    FILE *const out = fopen(to, "wb");
    uint32_t kept = 0, done = 0;

    if (!dir || !out || !slicer)
        return 1;
    for (struct dirent *e; (e = readdir(dir)) && n < 100000;)
        if (e->d_name[0] != '.')
            names[n++] = strdup(e->d_name);
    closedir(dir);
    qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n && done < most; i++) {
        char path[4096];
        struct case_picture p;
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        uint8_t *const jpeg = slurp(path, &len);
        if (case_slice(&p, slicer, jpeg, len)) {
            const uint32_t size = (uint32_t)(plain ? len : p.len);
            fwrite(&size, sizeof(size), 1, out);
            fwrite(plain ? jpeg : p.jpeg, 1, size, out);
            done++;
        } else {
            kept++;
        }
        case_free(&p);
        free(jpeg);
    }
    fl_slicer_free(slicer);
    printf("%u pictures, %u that are not sliced\n", done, kept);
    return fclose(out) != 0;
}

static void load_sliced(struct case_picture *p, struct fl_slice_parts *keep,
                        const struct fl_slice_parts *parts)
{
    FlError err;

    p->blob = need(parts->blob.len);
    memcpy(p->blob, parts->blob.data, parts->blob.len);
    CHECK(fl_slice_table_unpack(&p->table, p->blob, parts->blob.len));
    keep->blob = (struct fl_slice_bytes){ p->blob, parts->blob.len };
    for (int i = 0; i < FL_SLICE_HEADERS; i++) {
        uint8_t *const h = need(parts->headers[i].len);
        memcpy(h, parts->headers[i].data, parts->headers[i].len);
        keep->headers[i] = (struct fl_slice_bytes){ h, parts->headers[i].len };
        CHECK(fl_gpu_jpeg_header_add(&p->header, h, parts->headers[i].len, &err));
    }
    CHECK(fl_gpu_jpeg_header_finish(&p->header, p->table.frame.width, p->table.frame.height,
                                    p->table.interval, &err));
}

/* A JPEG as it is: its entry points. Returns the bytes that they take in the index. */
static size_t load_plain(struct set *s, struct case_picture *p, struct fl_direct *direct)
{
    struct fl_entry_table *const t = &s->entries[s->n];
    struct fl_slice_parts made;
    FlError err = { 0 };

    CHECK(fl_gpu_jpeg_header_add(&p->header, p->jpeg, p->len, &err));
    CHECK(fl_gpu_jpeg_header_finish(&p->header, 0, 0, 0, &err));
    if (fl_direct_entries(direct, p->jpeg, p->len, &made, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    p->blob = need(made.blob.len);
    memcpy(p->blob, made.blob.data, made.blob.len);
    CHECK(fl_entry_unpack(t, p->blob, made.blob.len));
    p->table.data_offset = t->data_offset;
    p->table.data_length = p->len - t->data_offset;
    p->table.frame = t->frame;
    return made.blob.len;
}

static struct set load(const char *path, bool pinned)
{
    struct set s = { 0 };
    struct fl_slicer *const slicer = fl_slicer_new();
    struct fl_slice_parts parts;
    struct fl_direct *const direct = fl_direct_new(0, (size_t)1 << 28, FL_CPU_BEST);
    size_t len, at = 0, points = 0, index = 0;
    uint8_t *const file = slurp(path, &len);

    if (pinned)
        CHECK(cudaHostAlloc((void **)&s.bytes, len + 64, cudaHostAllocPortable));
    else
        s.bytes = need(len + 64);
    memcpy(s.bytes, file, len);
    free(file);
    s.size = len;
    s.pics = need(10000 * sizeof(*s.pics));
    s.parts = need(10000 * sizeof(*s.parts));
    s.entries = need(10000 * sizeof(*s.entries));
    for (; at + 4 < len && s.n < 10000; s.n++) {
        struct case_picture *const p = &s.pics[s.n];
        uint32_t size;
        memcpy(&size, s.bytes + at, 4);
        p->jpeg = s.bytes + at + 4;
        p->len = size;
        at += 4 + size;
        if (fl_slicer_table(slicer, p->jpeg, p->len, &parts) == 0)
            load_sliced(p, &s.parts[s.n], &parts);
        else
            index += load_plain(&s, p, direct);
        points += (size_t)s.entries[s.n].points * s.entries[s.n].mcu_rows;
    }
    if (points)
        printf("%.1f KB, %.0f entry points and %.2f KB of index a picture\n",
               (double)len / s.n / 1e3, (double)points / s.n, (double)index / s.n / 1e3);
    fl_direct_free(direct);
    fl_slicer_free(slicer);
    return s;
}

/* What the decoder is to be told of a crop of a picture. scratch: entry points of a plan at a time. */
static void request(const struct set *s, uint32_t pic, const struct fl_crop *crop, bool exact,
                    struct fl_jpeg_segment *scratch, struct fl_gpu_jpeg_picture *in)
{
    const struct case_picture *const p = &s->pics[pic];
    FlError err = { 0 };

    if (!s->entries[pic].points) {
        CHECK(case_request(p, crop, exact, in));
        return;
    }
    const int scale = fl_resize_scale(crop->box.w, crop->box.h, crop->rw, crop->rh, exact);
    struct fl_entry_range r;
    CHECK(fl_entry_range(&s->entries[pic], fl_resize_reach(crop, scale), scale, &r));
    *in = (struct fl_gpu_jpeg_picture){ .header = &p->header,
                                        .bytes = p->jpeg + r.offset,
                                        .length = (uint32_t)r.length,
                                        .crop = *crop,
                                        .exact = exact };
    if (fl_gpu_jpeg_entries(&s->entries[pic], &r, scratch, ENTRIES, in, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
}

/* The i-th draw: which picture, and which part of it. */
static struct fl_crop draw(const struct set *s, uint64_t i, uint32_t *pic)
{
    const FlImage image = {
        .width = SIDE, .height = SIDE, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f
    };
    const struct fl_crop_key key = { .seed = 1, .epoch = 0, .position = i, .column = 0 };

    *pic = case_hash((uint32_t)i * 2654435761u + 5) % s->n;
    return fl_crop_draw(&image, &key, (int32_t)s->pics[*pic].table.frame.width,
                        (int32_t)s->pics[*pic].table.frame.height);
}

static struct fl_gpu_jpeg_cfg config(uint32_t batch, FlDtype dtype, const void *table)
{
    struct fl_gpu_jpeg_cfg cfg = {
        .lanes = 2,
        .room = fl_gpu_jpeg_room_for(batch + 16, 180000, 160000, SIDE, SIDE),
        .width = SIDE,
        .height = SIDE,
        .channels = 3,
        .dtype = dtype,
        .layout = FL_NHWC,
        .table = table,
    };
    return cfg;
}

/* ---- cut ---------------------------------------------------------------------------------------- */

/* What a crop needs of its picture as an ordinary smaller JPEG, in the format of pack(). */
static int cut(const char *path, const char *to, uint32_t n)
{
    const struct set set = load(path, false);
    FILE *const out = fopen(to, "wb");
    uint64_t pixels = 0, bytes = 0;

    for (uint32_t i = 0; out && i < n; i++) {
        uint32_t pic;
        const struct fl_crop crop = draw(&set, i, &pic);
        const struct case_picture *const p = &set.pics[pic];
        const struct fl_slice_bytes *const headers = set.parts[pic].headers;
        const int scale = fl_resize_scale(crop.box.w, crop.box.h, crop.rw, crop.rh, false);
        struct fl_slice_range r;
        size_t len = 0;
        FlError err;
        CHECK(fl_slice_range(&p->table, crop.box, scale, &r));
        const size_t room = fl_slice_cut_bytes(&r, headers);
        uint8_t *const jpeg = need(room);
        CHECK(fl_slice_cut(&p->table, &r, headers, p->jpeg + r.offset, jpeg, room, &len, &err));
        const uint32_t size = (uint32_t)len;
        fwrite(&size, sizeof(size), 1, out);
        fwrite(jpeg, 1, len, out);
        free(jpeg);
        pixels += (uint64_t)r.rect.w * (uint64_t)r.rect.h;
        bytes += len;
    }
    printf("%u slices, %.0f pixels and %.0f bytes each\n", n, (double)pixels / n,
           (double)bytes / n);
    return !out || fclose(out);
}

/* ---- check ------------------------------------------------------------------------------------ */

struct check {
    const struct set *set;
    const uint8_t *got; // u8 NHWC
    uint64_t first;
    uint32_t n;
    bool exact;
    atomic_uint next, bad;
};

static void *check_thread(void *arg)
{
    struct check *const c = arg;
    struct fl_jpeg_decoder *dec;
    uint8_t *const want = need(SIDE * SIDE * 3);
    const size_t row = SIDE * SIDE * 3;

    CHECK(fl_jpeg_decoder_new(&dec, &(struct fl_jpeg_limits){ 0 }, fl_kernels_get(FL_CPU_BEST)));
    for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;) {
        uint32_t pic;
        const struct fl_crop crop = draw(c->set, c->first + i, &pic);
        const struct fl_jpeg_request req = { .crop = crop,
                                             .exact = c->exact,
                                             .channels = 3,
                                             .orientation = 1,
                                             .dst = want,
                                             .stride = SIDE * 3 };
        FlError err = { 0 };
        const struct case_picture *const p = &c->set->pics[pic];
        const int rc = fl_jpeg_decode(dec, p->jpeg, p->len, &req, &err, NULL);
        if (rc || memcmp(want, c->got + i * row, row)) {
            if (atomic_fetch_add(&c->bad, 1) < 8)
                fprintf(stderr, "draw %llu picture %u: differs (%d), box %d %d %d %d of %u x %u\n",
                        (unsigned long long)(c->first + i), pic, rc, crop.box.x, crop.box.y,
                        crop.box.w, crop.box.h, p->table.frame.width, p->table.frame.height);
        }
    }
    fl_jpeg_decoder_free(dec);
    free(want);
    return NULL;
}

static uint32_t check_batch(const struct set *set, const uint8_t *got, uint64_t first, uint32_t n,
                            bool exact)
{
    struct check c = { .set = set, .got = got, .first = first, .n = n, .exact = exact };
    pthread_t threads[16];

    for (int i = 0; i < 16; i++)
        CHECK(pthread_create(&threads[i], NULL, check_thread, &c));
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    return c.bad;
}

/* GPU pixels of draws [first, first + n), u8. Returns pictures with flags. */
static uint32_t decode_batch(struct fl_gpu_jpeg *dec, const struct set *set, uint64_t first,
                             uint32_t n, bool exact, cudaStream_t stream, void *device,
                             uint8_t *host)
{
    static struct fl_jpeg_segment scratch[ENTRIES];
    struct fl_jpeg_plan *const plan = fl_gpu_jpeg_begin(dec, 0);
    FlError err = { 0 };
    uint32_t flagged = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct fl_gpu_jpeg_picture in;
        uint32_t pic;
        const struct fl_crop crop = draw(set, first + i, &pic);
        request(set, pic, &crop, exact, scratch, &in);
        in.row = i;
        if (fl_jpeg_plan_add(plan, &in, &err) < 0) {
            fprintf(stderr, "draw %llu: %s\n", (unsigned long long)(first + i), err.message);
            exit(1);
        }
    }
    CHECK(cudaMemset(device, 0xee, (size_t)n * SIDE * SIDE * 3));
    if (fl_gpu_jpeg_submit(dec, 0, stream, stream, device, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host, device, (size_t)n * SIDE * SIDE * 3, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < n; i++)
        flagged += fl_gpu_jpeg_flags(dec, 0)[i] != 0;
    return flagged;
}

static int check(const char *path, uint32_t total)
{
    const struct set set = load(path, true);
    const uint32_t batch = 256;
    uint8_t *const host = need((size_t)batch * SIDE * SIDE * 3);
    uint32_t bad = 0, flagged = 0, done = 0;
    void *device;
    cudaStream_t stream;

    CHECK(cudaMalloc(&device, (size_t)batch * SIDE * SIDE * 3));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int variant = 0; variant < 4; variant++) { // copy engine or kernel; DCT scaling or exact
        struct fl_gpu_jpeg_cfg cfg = config(batch, FL_U8, NULL);
        struct fl_gpu_jpeg *dec;
        FlError err;
        cfg.lanes = 1;
        cfg.room = fl_gpu_jpeg_room_for(batch, 400000, 300000, SIDE, SIDE);
        cfg.copy = variant & 1 ? FL_GPU_JPEG_COPY_ENGINE : FL_GPU_JPEG_COPY_KERNEL;
        cfg.grid = variant == 3 ? 64 : 0;
        if (fl_gpu_jpeg_open(&dec, &cfg, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        for (uint32_t i = 0; i < total / 4; i += batch) {
            const bool exact = variant >= 2;
            flagged += decode_batch(dec, &set, done, batch, exact, stream, device, host);
            bad += check_batch(&set, host, done, batch, exact);
            done += batch;
        }
        fl_gpu_jpeg_close(&dec);
    }
    printf("check: %u crops of %u pictures: %u differ from the CPU, %u flagged\n", done, set.n, bad,
           flagged);
    return bad || flagged;
}

/* ---- damage ----------------------------------------------------------------------------------- */

static int damage(const char *path, uint32_t total)
{
    const struct set set = load(path, true);
    const uint32_t batch = 64;
    struct fl_gpu_jpeg_cfg cfg = config(batch, FL_U8, NULL);
    uint8_t *const host = need((size_t)batch * SIDE * SIDE * 3);
    struct fl_gpu_jpeg *dec;
    uint32_t flagged = 0, done = 0;
    void *device;
    FlError err;

    cfg.room = fl_gpu_jpeg_room_for(batch, 400000, 300000, SIDE, SIDE);
    CHECK(fl_gpu_jpeg_open(&dec, &cfg, &err));
    CHECK(cudaMalloc(&device, (size_t)batch * SIDE * SIDE * 3));
    for (; done < total; done += batch) {
        for (uint32_t i = 0; i < set.n; i++) { // in the files themselves: each turn a little more
            const struct case_picture *const p = &set.pics[i];
            const uint32_t r = case_hash(i * 77 + done);
            const uint64_t at = p->table.data_offset + r % p->table.data_length;
            if (r & 0x10000000)
                p->jpeg[at] ^= (uint8_t)(1u << (r >> 29));
            else
                memset(p->jpeg + at, (int)(r >> 20 & 255),
                       p->table.data_offset + p->table.data_length - at < 40 ? 1 : 40);
        }
        flagged += decode_batch(dec, &set, done, batch, done & 64, NULL, device, host);
    }
    CHECK(cudaFree(device));
    fl_gpu_jpeg_close(&dec);
    printf("damage: %u of %u pictures flagged\n", flagged, done);
    return 0;
}

/* ---- time ------------------------------------------------------------------------------------- */

struct options {
    uint32_t batch, threads, lanes, copy, scatter, grid, low, rate;
    double seconds;
};

struct feeder {
    pthread_t thread;
    const struct set *set;
    const struct options *o;
    struct fl_gpu_jpeg *dec;
    uint32_t number;
    uint64_t done;
    int64_t plan_ns, submit_ns, begin, end;
    uint64_t bytes;
    uint32_t batches;
    float stages[FL_GPU_JPEG_STAGES];
    uint32_t timed, flagged;
    uint16_t *table;
};

/* A batch's worth of draws, its slices laid side by side in pinned memory as a reader that is given
 * the place would leave them (scatter 0), or where they are in the files (scatter 1). */
struct stock {
    struct fl_crop *crops;
    uint32_t *pics;
    const uint8_t **bytes;
    uint8_t *memory;
};

static struct stock stock_of(const struct set *set, const struct options *o, uint64_t first)
{
    struct stock s = { need(o->batch * sizeof(*s.crops)), need(o->batch * sizeof(*s.pics)),
                       need(o->batch * sizeof(*s.bytes)), NULL };
    struct fl_jpeg_segment *const scratch = need(ENTRIES * sizeof(*scratch));
    uint64_t size = 0;

    for (int pass = 0; pass < 2; pass++) {
        uint64_t at = 0;
        if (pass)
            CHECK(cudaHostAlloc((void **)&s.memory, size + 64, cudaHostAllocPortable));
        for (uint32_t i = 0; i < o->batch; i++) {
            struct fl_gpu_jpeg_picture in;
            s.crops[i] = draw(set, first + i, &s.pics[i]);
            request(set, s.pics[i], &s.crops[i], false, scratch, &in);
            s.bytes[i] = in.bytes;
            if (pass && !o->scatter) {
                memcpy(s.memory + at, in.bytes, in.length);
                s.bytes[i] = s.memory + at;
            }
            at += (in.length + 15) & ~15u;
        }
        size = at;
    }
    free(scratch);
    return s;
}

static void plan_sliced(const struct set *set, const struct stock *s, uint32_t i,
                        struct fl_gpu_jpeg_header *header, struct fl_gpu_jpeg_picture *in)
{
    const struct fl_slice_parts *const parts = &set->parts[s->pics[i]];
    const struct fl_crop *const crop = &s->crops[i];
    struct fl_slice_table t;
    struct fl_slice_range r;
    FlError err;

    CHECK(fl_slice_table_unpack(&t, parts->blob.data, parts->blob.len));
    const int scale = fl_resize_scale(crop->box.w, crop->box.h, crop->rw, crop->rh, false);
    CHECK(fl_slice_range(&t, crop->box, scale, &r));
    memset(header, 0, sizeof(*header));
    for (int k = 0; k < FL_SLICE_HEADERS; k++)
        CHECK(fl_gpu_jpeg_header_add(header, parts->headers[k].data, parts->headers[k].len, &err));
    CHECK(fl_gpu_jpeg_header_finish(header, t.frame.width, t.frame.height, t.interval, &err));
    *in = (struct fl_gpu_jpeg_picture){
        .header = header,
        .length = (uint32_t)r.length,
        .group_row = r.group_row,
        .first_row = r.first_row,
        .n_rows = r.n_rows,
        .first_segment = r.first_segment,
        .n_segments = r.n_segments,
        .crop = *crop,
    };
}

/* What the pipeline does for a picture when its bytes are there. */
static void plan_picture(const struct set *set, const struct stock *s, uint32_t i,
                         struct fl_jpeg_plan *plan, struct fl_gpu_jpeg_header *header,
                         struct fl_jpeg_segment *scratch)
{
    struct fl_gpu_jpeg_picture in;
    FlError err;

    if (set->entries[s->pics[i]].points)
        request(set, s->pics[i], &s->crops[i], false, scratch, &in);
    else
        plan_sliced(set, s, i, header, &in);
    in.bytes = s->bytes[i];
    in.row = i;
    if (fl_jpeg_plan_add(plan, &in, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
}

#define STOCK 8

static void *feed(void *arg)
{
    struct feeder *const f = arg;
    const struct options *const o = f->o;
    struct stock stock[STOCK];
    struct fl_gpu_jpeg_header header;
    struct fl_jpeg_segment *const scratch = need(ENTRIES * sizeof(*scratch));
    cudaStream_t copy, kernels[8];
    cudaEvent_t done[8];
    void *out[8];
    int lowest, highest;
    FlError err = { 0 };

    for (uint32_t i = 0; i < STOCK; i++)
        stock[i] = stock_of(f->set, o, (uint64_t)(f->number * STOCK + i) * o->batch);
    CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CHECK(cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking));
    for (uint32_t i = 0; i < o->lanes; i++) {
        CHECK(cudaStreamCreateWithPriority(&kernels[i], cudaStreamNonBlocking,
                                           o->low ? lowest : highest));
        CHECK(cudaEventCreateWithFlags(&done[i], cudaEventBlockingSync | cudaEventDisableTiming));
        CHECK(cudaMalloc(&out[i], (size_t)o->batch * SIDE * SIDE * 3 * 2));
    }
    f->begin = fl_now_ns();
    const int64_t stop = f->begin + (int64_t)(o->seconds * 1e9);
    for (uint32_t n = 0; fl_now_ns() < stop; n++) {
        const uint32_t lane = n % o->lanes;
        if (n >= o->lanes) {
            CHECK(cudaEventSynchronize(done[lane]));
            float ms[FL_GPU_JPEG_STAGES];
            if (!fl_gpu_jpeg_times(f->dec, lane, ms)) {
                for (int k = 0; k < FL_GPU_JPEG_STAGES; k++)
                    f->stages[k] += ms[k];
                f->timed++;
            }
            for (uint32_t i = 0; i < o->batch; i++)
                f->flagged += fl_gpu_jpeg_flags(f->dec, lane)[i] != 0;
            f->done += o->batch;
        }
        const int64_t due =
            f->begin + (int64_t)(o->rate ? 1e9 * n * o->batch * o->threads / o->rate : 0);
        for (int64_t wait; (wait = due - fl_now_ns()) > 0;)
            nanosleep(&(struct timespec){ wait / 1000000000, wait % 1000000000 }, NULL);
        const int64_t t0 = fl_thread_cpu_ns();
        struct fl_jpeg_plan *const plan = fl_gpu_jpeg_begin(f->dec, lane);
        for (uint32_t i = 0; i < o->batch; i++)
            plan_picture(f->set, &stock[n % STOCK], i, plan, &header, scratch);
        const int64_t t1 = fl_thread_cpu_ns();
        if (fl_gpu_jpeg_submit(f->dec, lane, o->lanes > 1 ? copy : kernels[lane], kernels[lane],
                               out[lane], &err)) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        CHECK(cudaEventRecord(done[lane], kernels[lane]));
        f->plan_ns += t1 - t0;
        f->submit_ns += fl_thread_cpu_ns() - t1;
        f->bytes += plan->used.bytes;
        f->batches++;
    }
    for (uint32_t i = 0; i < o->lanes; i++) {
        CHECK(cudaStreamSynchronize(kernels[i]));
        CHECK(cudaFree(out[i]));
    }
    for (uint32_t i = 0; i < STOCK; i++)
        CHECK(cudaFreeHost(stock[i].memory));
    free(scratch);
    f->done = (uint64_t)f->batches * o->batch;
    f->end = fl_now_ns();
    return NULL;
}

/* The list of runs for a program to read; NULL: nobody asked. */
static FILE *saved;

static void save_run(const struct options *o, double rate, double cores, double gb, double plan,
                     double submit, const double ms[FL_GPU_JPEG_STAGES])
{
    static const char *const names[FL_GPU_JPEG_STAGES] = { "copy", "prepare", "huffman", "idct",
                                                           "pixels" };
    static int n;

    if (!saved)
        return;
    fprintf(saved,
            "%s\n  {\"batch\": %u, \"threads\": %u, \"lanes\": %u, \"copy\": %u, "
            "\"scatter\": %u, \"grid\": %u, \"low\": %u, \"rate\": %u, "
            "\"images_per_second\": %.1f, \"cores\": %.3f, \"gb_per_second\": %.3f, "
            "\"plan_us\": %.3f, \"submit_us\": %.3f",
            n++ ? "," : "", o->batch, o->threads, o->lanes, o->copy, o->scatter, o->grid, o->low,
            o->rate, rate, cores, gb, plan, submit);
    for (int i = 0; ms && i < FL_GPU_JPEG_STAGES; i++)
        fprintf(saved, ", \"%s_ms\": %.4f", names[i], ms[i]);
    fputc('}', saved);
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void report(const struct options *o, const struct feeder *f, double cpu)
{
    uint64_t done = 0, bytes = 0;
    double seconds = 0, plan = 0, submit = 0, stages[FL_GPU_JPEG_STAGES] = { 0 };
    uint32_t timed = 0, flagged = 0;

    for (uint32_t i = 0; i < o->threads; i++) {
        done += f[i].done;
        bytes += f[i].bytes;
        seconds += (double)(f[i].end - f[i].begin) * 1e-9 / o->threads;
        plan += (double)f[i].plan_ns;
        submit += (double)f[i].submit_ns;
        timed += f[i].timed;
        flagged += f[i].flagged;
        for (int k = 0; k < FL_GPU_JPEG_STAGES; k++)
            stages[k] += f[i].stages[k];
    }
    printf("batch %4u threads %u lanes %u copy %u scatter %u grid %3u low %u: %8.0f images/s, "
           "%.2f cores, %.2f GB/s; us/picture on the CPU: plan %.2f submit %.2f",
           o->batch, o->threads, o->lanes, o->copy, o->scatter, o->grid, o->low,
           (double)done / seconds, cpu / seconds, (double)bytes / seconds * 1e-9,
           plan / (double)done * 1e-3, submit / (double)done * 1e-3);
    for (int k = 0; k < FL_GPU_JPEG_STAGES && timed; k++)
        stages[k] /= timed;
    save_run(o, (double)done / seconds, cpu / seconds, (double)bytes / seconds * 1e-9,
             plan / (double)done * 1e-3, submit / (double)done * 1e-3, timed ? stages : NULL);
    if (timed)
        printf("; ms: copy %.3f prepare %.3f huffman %.3f idct %.3f pixels %.3f", stages[0],
               stages[1], stages[2], stages[3], stages[4]);
    printf("%s\n", flagged ? "; FLAGGED" : "");
    fflush(stdout);
}

static int time_it(const char *path, int argc, char **argv)
{
    static struct set set;
    struct options o = { .batch = 256, .threads = 1, .lanes = 2, .copy = 1, .seconds = 1 };
    struct feeder *const feeders = need(16 * sizeof(*feeders));
    uint16_t table[3 * 256];
    FlError err;

    for (int i = 0; i < argc; i++) {
        const char *const eq = strchr(argv[i], '=');
        const uint32_t v = eq ? (uint32_t)atoi(eq + 1) : 0;
        const struct {
            const char *key;
            uint32_t *to;
        } keys[] = { { "batch", &o.batch }, { "threads", &o.threads }, { "lanes", &o.lanes },
                     { "copy", &o.copy },   { "scatter", &o.scatter }, { "grid", &o.grid },
                     { "low", &o.low },     { "rate", &o.rate } };
        for (size_t k = 0; eq && k < sizeof(keys) / sizeof(keys[0]); k++)
            if (!strncmp(argv[i], keys[k].key, (size_t)(eq - argv[i])))
                *keys[k].to = v;
        if (eq && !strncmp(argv[i], "seconds", 7))
            o.seconds = atof(eq + 1);
        if (eq && !strncmp(argv[i], "save=", 5) && !saved && (saved = fopen(eq + 1, "we")))
            fputc('[', saved);
    }
    if (!set.n)
        set = load(path, true);
    for (int i = 0; i < 3 * 256; i++)
        table[i] = (uint16_t)case_hash((uint32_t)i);
    for (uint32_t i = 0; i < o.threads; i++) {
        struct fl_gpu_jpeg_cfg cfg = config(o.batch, FL_BF16, table);
        cfg.lanes = o.lanes;
        cfg.copy = (enum fl_gpu_jpeg_copy)o.copy;
        cfg.grid = o.grid;
        feeders[i] = (struct feeder){ .set = &set, .o = &o, .number = i };
        if (fl_gpu_jpeg_open(&feeders[i].dec, &cfg, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        if (o.lanes == 1)
            fl_gpu_jpeg_time(feeders[i].dec);
    }
    for (uint32_t i = 0; i < o.threads; i++)
        CHECK(pthread_create(&feeders[i].thread, NULL, feed, &feeders[i]));
    const double before = cpu_seconds();
    for (uint32_t i = 0; i < o.threads; i++)
        pthread_join(feeders[i].thread, NULL);
    report(&o, feeders, cpu_seconds() - before);
    for (uint32_t i = 0; i < o.threads; i++)
        fl_gpu_jpeg_close(&feeders[i].dec);
    free(feeders);
    return 0;
}

/* Several sets of options, set apart by "--". */
static int time_all(const char *path, int argc, char **argv)
{
    int rc = 0, begin = 0;

    for (int i = 0; i <= argc && !rc; i++)
        if (i == argc || !strcmp(argv[i], "--")) {
            rc = time_it(path, i - begin, argv + begin);
            begin = i + 1;
        }
    if (saved) {
        fputs("\n]\n", saved);
        rc |= fclose(saved) != 0;
    }
    return rc;
}

int main(int argc, char **argv)
{
    const char *const verb = argc > 2 ? argv[1] : "";

    if (!strcmp(verb, "pack") && argc > 3)
        return pack(argv[2], argv[3], argc > 4 ? (uint32_t)atoi(argv[4]) : 100000, false);
    if (!strcmp(verb, "plain") && argc > 3)
        return pack(argv[2], argv[3], argc > 4 ? (uint32_t)atoi(argv[4]) : 100000, true);
    if (!strcmp(verb, "cut") && argc > 3)
        return cut(argv[2], argv[3], argc > 4 ? (uint32_t)atoi(argv[4]) : 1024);
    if (!strcmp(verb, "check"))
        return check(argv[2], argc > 3 ? (uint32_t)atoi(argv[3]) : 4096);
    if (!strcmp(verb, "damage"))
        return damage(argv[2], argc > 3 ? (uint32_t)atoi(argv[3]) : 256);
    if (!strcmp(verb, "time"))
        return time_all(argv[2], argc - 3, argv + 3);
    fprintf(stderr, "usage: stage_gpu_jpeg pack|plain|cut|check|damage|time FILE ...\n");
    return 2;
}
