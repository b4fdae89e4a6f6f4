/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bytes.h"
#include <feedline/error.h>

#include "base/file.h"
#include "shard/tar_writer.h"
#include "t.h"

static char dir[] = "/tmp/feedline-tar-XXXXXX";

/* A name of n bytes: one part, or with a slash at `slash`. */
static const char *long_name(size_t n, size_t slash)
{
    static char name[8192];

    memset(name, 'a', n);
    name[n] = 0;
    if (slash)
        name[slash] = '/';
    return name;
}

static void test_headers(void)
{
    static const struct {
        const char *name;
        size_t len, slash;
        uint64_t size;
        size_t bytes; // of header
    } cases[] = {
        { "short", 5, 0, 0, 512 },
        { "100 bytes fit", 100, 0, 1, 512 },
        { "101 bytes need pax", 101, 0, 1, 3 * 512 },
        { "101 bytes with a slash fit", 101, 3, 1, 512 },
        { "prefix of 155, name of 100", 256, 155, 1, 512 },
        { "prefix of 156", 257, 156, 1, 3 * 512 },
        { "slash too early", 150, 10, 1, 3 * 512 },
        { "slash at the end of the name", 101, 100, 1, 3 * 512 },
        { "pax record of 99 digits border", 99 - 8 + 20, 0, 1, 3 * 512 },
        { "largest ustar size", 5, 0, 077777777777u, 512 },
        { "8 GiB", 5, 0, 0100000000000u, 3 * 512 },
        { "8 GiB and a long name", 600, 0, 0100000000000u, 4 * 512 },
        { "longest name", 4095, 0, 1, 11 * 512 },
        { "too long a name", 4096, 0, 1, 0 },
        { "no name", 0, 0, 1, 0 },
    };
    uint8_t out[FL_TAR_HEADER_MAX];

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].name);
        const char *name = long_name(cases[i].len, cases[i].slash);
        T_EQ(fl_tar_header(out, name, cases[i].len, cases[i].size), cases[i].bytes);
    }
    t_case("a NUL in the name");
    T_EQ(fl_tar_header(out, "a\0b", 3, 1), 0);
    t_case("member bytes");
    T_EQ(fl_tar_member_bytes("a.jpg", 5, 0), 512);
    T_EQ(fl_tar_member_bytes("a.jpg", 5, 512), 1024);
    T_EQ(fl_tar_member_bytes("a.jpg", 5, 513), 1536);
}

static void test_header_bytes(void)
{
    uint8_t a[FL_TAR_HEADER_MAX];

    t_case("every field of a header");
    T_EQ(fl_tar_header(a, "k/x.jpg", 7, 1234), 512);
    T_STR((char *)a, "k/x.jpg");
    T_STR((char *)a + 100, "0000644");
    T_STR((char *)a + 108, "0000000"); // user
    T_STR((char *)a + 116, "0000000"); // group
    T_STR((char *)a + 124, "00000002322");
    T_STR((char *)a + 136, "00000000000"); // time
    T_EQ(a[156], '0');
    T_EQ(memcmp(a + 257, "ustar\00000", 8), 0);
    T_EQ(a[265], 0); // no names of users
    T_EQ(a[297], 0);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += i >= 148 && i < 156 ? ' ' : a[i];
    T_EQ(strtoul((char *)a + 148, NULL, 8), sum);
    T_EQ(a[155], ' ');
}

static void test_pax_record(void)
{
    uint8_t out[FL_TAR_HEADER_MAX];

    // The length counts its own digits: around the step from two to three digits and from three to four.
    for (size_t len = 101; len < 1100; len++) {
        const char *name = long_name(len, 0);
        char *end;
        t_case("pax record");
        T_OK(fl_tar_header(out, name, len, 1) > 512);
        const char *record = (char *)out + 512;
        const unsigned long n = strtoul(record, &end, 10);
        T_EQ(memcmp(end, " path=", 6), 0);
        T_EQ(n, (unsigned long)(end - record) + 6 + len + 1);
        T_EQ(record[n - 1], '\n');
        T_EQ(strtoul((char *)out + 124, NULL, 8), n);
    }
}

static int open_at(const char *path)
{
    return open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
}

/* Members of many sizes, through the buffer and past it; contents stand where the offsets say. */
static void test_archive(void)
{
    static const size_t sizes[] = { 0, 1, 511, 512, 513, 1 << 20, (1 << 20) + 1, 3000000, 7 };
    struct fl_tar_writer w;
    char *path = fl_path_join(dir, "a.tar");
    uint64_t offsets[T_LEN(sizes)];
    struct fl_bytes content = { 0 };
    void *data;
    size_t len;
    const int fd = open_at(path);

    t_case("archive");
    for (size_t i = 0; i < 3000000; i++) {
        const uint8_t c = (uint8_t)(i * 31 + i / 257);
        fl_bytes_add(&content, &c, 1);
    }
    T_EQ(fl_tar_writer_init(&w, fd, path), 0);
    for (size_t i = 0; i < T_LEN(sizes); i++) {
        char name[32];
        const int n = snprintf(name, sizeof(name), "%zu.bin", i);
        T_EQ(fl_tar_writer_member(&w, name, (size_t)n, content.data, sizes[i], &offsets[i]), 0);
    }
    T_EQ(fl_tar_writer_member(&w, "", 0, NULL, 0, &offsets[0]), -EINVAL);
    T_EQ(fl_tar_writer_finish(&w), 0);
    const uint64_t total = w.offset;
    fl_tar_writer_fini(&w);
    close(fd);
    T_EQ(fl_file_read(path, 1 << 28, &data, &len), 0);
    T_EQ(len, total);
    T_EQ(len % 512, 0);
    for (size_t i = 0; i < T_LEN(sizes); i++)
        T_EQ(memcmp((char *)data + (i ? offsets[i] : 512), content.data, sizes[i]), 0);
    static const char zeros[1024];
    T_EQ(memcmp((char *)data + len - 1024, zeros, 1024), 0);
    free(data);
    fl_bytes_free(&content);
    free(path);
}

static int shell(const char *command)
{
    const int rc = system(command);

    return rc == -1 ? -1 : WEXITSTATUS(rc);
}

/* Other programs read what we write: names of every kind, and a member beyond 8 GiB (a hole). */
static void test_others(void)
{
    char *path = fl_path_join(dir, "b.tar"), command[2048];
    struct fl_tar_writer w;
    uint8_t header[FL_TAR_HEADER_MAX];
    uint64_t offset;
    const int fd = open_at(path);

    t_case("other readers");
    T_EQ(fl_tar_writer_init(&w, fd, path), 0);
    T_EQ(fl_tar_writer_member(&w, "plain/a.cls", 11, "7", 1, &offset), 0);
    T_EQ(fl_tar_writer_member(&w, "k\xC3\xA4se.txt", 9, "umlaut", 6, &offset), 0);
    T_EQ(fl_tar_writer_member(&w, long_name(101, 3), 101, "prefix", 6, &offset), 0);
    T_EQ(fl_tar_writer_member(&w, long_name(1000, 0), 1000, "pax", 3, &offset), 0);
    T_EQ(fl_tar_writer_finish(&w), 0);
    const off_t at = (off_t)w.offset - 1024;
    fl_tar_writer_fini(&w);
    const size_t n = fl_tar_header(header, "big.bin", 7, 9ull << 30);
    T_EQ(pwrite(fd, header, n, at), (ssize_t)n);
    const int sparse = !ftruncate(fd, at + (off_t)n + (9ll << 30) + 1024);
    close(fd);
    snprintf(
        command, sizeof(command),
        "python3 -c \"import tarfile\n"
        "t = tarfile.open('%s'); m = t.getmembers()\n"
        "want = ['plain/a.cls', 'k\\u00e4se.txt', 'aaa/' + 'a' * 97, 'a' * 1000, 'big.bin']\n"
        "assert [x.name for x in m] == want, [x.name for x in m]\n"
        "assert [x.size for x in m] == [1, 6, 6, 3, 9 << 30]\n"
        "assert all(x.mode == 0o644 and not x.mtime and not x.uid and not x.uname for x in m)\n"
        "assert t.extractfile(m[3]).read() == b'pax'\"",
        path);
    if (!sparse || shell("command -v python3 >/dev/null"))
        printf("skipped: python3, or a file system with holes, is missing\n");
    else
        T_EQ(shell(command), 0);
    snprintf(command, sizeof(command),
             "LC_ALL=C.UTF-8 tar -tf '%s' >'%s/list' && test $(wc -l <'%s/list') = 5", path, dir,
             dir);
    if (!sparse || shell("tar --version 2>/dev/null | grep -q GNU"))
        printf("skipped: GNU tar is missing\n");
    else
        T_EQ(shell(command), 0);
    free(path);
}

static void test_full_disk(void)
{
    struct fl_tar_writer w;
    uint64_t offset;
    static char content[1 << 21];
    const int fd = open("/dev/full", O_WRONLY);

    if (fd < 0)
        return;
    t_case("full disk");
    T_EQ(fl_tar_writer_init(&w, fd, "/dev/full"), 0);
    T_EQ(fl_tar_writer_member(&w, "a", 1, content, sizeof(content), &offset), -ENOSPC);
    T_HAS(fl_last_error()->message, "/dev/full: the disk is full");
    fl_tar_writer_fini(&w);
    close(fd);
}

int main(void)
{
    char command[64];

    if (!mkdtemp(dir))
        T_SKIP("no temporary folder");
    test_headers();
    test_header_bytes();
    test_pax_record();
    test_archive();
    test_others();
    test_full_disk();
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    T_EQ(shell(command), 0);
    return t_done();
}
