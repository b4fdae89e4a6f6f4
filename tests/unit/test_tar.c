/* SPDX-License-Identifier: Apache-2.0 */
/* Walking tar archives that are made here, block by block: every dialect, every cut, damage at every byte. */
#define _GNU_SOURCE
#include "formats/format.h"
#include "formats/name.h"
#include "formats/tar_header.h"

#include <sys/mman.h>
#include <unistd.h>

#include <feedline/error.h>

#include "t.h"

enum dialect { V7, USTAR, GNU, PAX, PAX_GLOBAL, BASE256 };

static void put(struct fl_bytes *b, const void *data, size_t n)
{
    fl_bytes_add(b, data, n);
}

static void pad(struct fl_bytes *b)
{
    static const uint8_t zeros[512];

    put(b, zeros, (512 - b->len % 512) % 512);
}

static void end(struct fl_bytes *b)
{
    static const uint8_t zeros[1024];

    put(b, zeros, sizeof(zeros));
}

static void seal(uint8_t *h)
{
    unsigned sum = 0;

    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
}

/* One header block as the dialect has it; name must fit. */
static void header(struct fl_bytes *b, enum dialect d, const char *name, const char *prefix,
                   uint64_t size, char type)
{
    uint8_t h[512] = { 0 };

    memcpy(h, name, strnlen(name, 100));
    memcpy(h + 100, "0000644", 7);
    memcpy(h + 108, "0001750", 7);
    memcpy(h + 116, "0001750", 7);
    if (d == BASE256) {
        h[124] = 0x80;
        for (int i = 0; i < 8; i++)
            h[135 - i] = (uint8_t)(size >> (8 * i));
    } else {
        snprintf((char *)h + 124, 12, "%011llo", (unsigned long long)size);
    }
    memcpy(h + 136, "14000000000", 11);
    h[156] = (uint8_t)(d == V7 && type == '0' ? 0 : type);
    if (d == GNU || d == BASE256)
        memcpy(h + 257, "ustar  ", 8);
    else if (d != V7)
        memcpy(h + 257, "ustar\00000", 8);
    if (prefix)
        memcpy(h + 345, prefix, strnlen(prefix, 155));
    seal(h);
    put(b, h, sizeof(h));
}

static size_t record(char *to, const char *key, const char *value)
{
    size_t n = strlen(key) + strlen(value) + 3, digits = 1;
    char text[32];

    while ((size_t)snprintf(text, sizeof(text), "%zu", n + digits) != digits)
        digits++;
    return (size_t)sprintf(to, "%zu %s=%s\n", n + digits, key, value);
}

static void pax(struct fl_bytes *b, char type, const char *key, const char *value)
{
    char text[6000];
    const size_t n = record(text, key, value);

    header(b, PAX, "PaxHeaders/x", NULL, n, type);
    put(b, text, n);
    pad(b);
}

static void member(struct fl_bytes *b, enum dialect d, const char *name, const void *data,
                   size_t size)
{
    const char *prefix = NULL, *shown = name;
    char cut[256] = "";

    if (d == GNU && strlen(name) > 99) {
        header(b, GNU, "././@LongLink", NULL, strlen(name) + 1, 'L');
        put(b, name, strlen(name) + 1);
        pad(b);
    } else if (d == PAX && strlen(name) > 99) {
        pax(b, 'x', "path", name);
        shown = "short";
    } else if (d == USTAR && strlen(name) > 99) {
        const char *slash = strchr(name, '/');
        memcpy(cut, name, (size_t)(slash - name));
        prefix = cut;
        shown = slash + 1;
    }
    header(b, d, shown, prefix, size, '0');
    put(b, data, size);
    pad(b);
}

/* What a walk saw. */
struct seen {
    int n;
    char names[16][512];
    uint8_t data[16][2048];
    size_t sizes[16];
    bool outside; // a member that is not in the file
};

static int note(void *cookie, struct fl_source *src, const struct fl_member *m)
{
    struct seen *s = cookie;

    if (m->offset > src->size || m->size > src->size - m->offset) {
        s->outside = true;
        return 0;
    }
    if (s->n < 16 && m->size <= sizeof(s->data[0])) {
        const uint8_t *bytes = m->size ? fl_source_get(src, m->offset, m->size, NULL) : NULL;
        snprintf(s->names[s->n], sizeof(s->names[0]), "%s", m->name);
        if (bytes)
            memcpy(s->data[s->n], bytes, m->size);
        s->sizes[s->n] = m->size;
    }
    s->n++;
    return 0;
}

static int walk(const void *bytes, size_t size, bool keep, struct seen *seen,
                struct fl_skips *skips, uint64_t *hash)
{
    struct fl_source src = { 0 };
    const int fd = memfd_create("tar", MFD_CLOEXEC);
    uint64_t h = 0;

    memset(seen, 0, sizeof(*seen));
    memset(skips, 0, sizeof(*skips));
    T_EQ(write(fd, bytes, size), size);
    int err = fl_source_borrow(&src, fd, "made.tar", 4096);
    if (!err)
        err = fl_format_tar.walk(&src, keep, note, seen, skips, &h);
    if (hash)
        *hash = h;
    fl_source_free(&src);
    close(fd);
    return err;
}

static char long_name[200];

static void make(struct fl_bytes *b, enum dialect d)
{
    *b = (struct fl_bytes){ 0 };
    if (d == PAX_GLOBAL)
        pax(b, 'g', "comment", "made by a version control system");
    member(b, d, "train/a.jpg", "first", 5);
    member(b, d, "train/a.cls", "7", 1);
    if (d == V7 || d == PAX_GLOBAL || d == BASE256)
        member(b, d, "train/b.jpg", "second one", 10);
    else
        member(b, d, long_name, "second one", 10);
    member(b, d, "train/c.jpg", "", 0);
    end(b);
}

static void test_dialects(void)
{
    static const char *const names[] = { "v7", "ustar", "gnu", "pax", "pax global", "base-256" };
    struct fl_bytes b;
    struct seen s;
    struct fl_skips skips;

    memset(long_name, 'p', 80);
    strcpy(long_name + 80, "/");
    memset(long_name + 81, 'n', 60);
    strcpy(long_name + 141, ".jpg");
    for (int d = V7; d <= BASE256; d++) {
        t_case(names[d]);
        make(&b, (enum dialect)d);
        T_EQ(walk(b.data, b.len, false, &s, &skips, NULL), 0);
        T_EQ(s.n, 4);
        T_STR(s.names[0], "train/a.jpg");
        T_STR(s.names[2], d == V7 || d == PAX_GLOBAL || d == BASE256 ? "train/b.jpg" : long_name);
        T_STR(s.names[3], "train/c.jpg"); // an extension is used up by one member
        T_OK(!memcmp(s.data[0], "first", 5) && s.sizes[0] == 5);
        T_OK(!memcmp(s.data[1], "7", 1) && s.sizes[1] == 1);
        T_OK(!memcmp(s.data[2], "second one", 10) && s.sizes[2] == 10);
        T_EQ(s.sizes[3], 0);
        T_EQ(skips.no_end, 0);
        fl_bytes_free(&b);
    }
}

/* A cut archive gives an error, or it ends behind a whole member; nothing is ever handed out short. */
static void test_cuts(void)
{
    struct fl_bytes b;
    struct seen s;
    struct fl_skips skips;

    t_case("every cut");
    make(&b, GNU);
    for (size_t n = 0; n < b.len; n++) {
        const int err = walk(b.data, n, false, &s, &skips, NULL);
        T_OK(!s.outside);
        if (err) {
            T_EQ(err, FL_ERR(EBADMSG));
            T_HAS(fl_last_error()->message, "made.tar");
            T_HAS(fl_last_error()->message, "at byte ");
            T_HAS(fl_last_error()->message, "the archive");
        } else if (n < b.len - 512) {
            T_EQ(skips.no_end, n == b.len - 1024 || n % 512 == 0);
        }
        // Inside the second block of zeros the end mark is already there.
        T_OK(err || n % 512 == 0 || n > b.len - 512);
    }
    t_case("cut content names the member");
    T_EQ(walk(b.data, 512 + 3, false, &s, &skips, NULL), FL_ERR(EBADMSG));
    T_HAS(fl_last_error()->message, "member \"train/a.jpg\" at byte 0");
    T_HAS(fl_last_error()->message, "5 bytes of content begin at byte 512");
    T_EQ(fl_last_error()->offset, 0);
    T_STR(fl_last_error()->container, "made.tar");
    fl_bytes_free(&b);
}

static void test_damage(void)
{
    struct fl_bytes b;
    struct seen s;
    struct fl_skips skips;

    t_case("every byte");
    make(&b, PAX);
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            b.data[i] ^= 1 << bit;
            walk(b.data, b.len, false, &s, &skips,
                 NULL); // any answer, but nothing outside the file
            T_OK(!s.outside);
            b.data[i] ^= 1 << bit;
        }

    t_case("the 12 bytes of a size, sealed");
    uint64_t seed = 1;
    for (int k = 0; k < 20000; k++) {
        static const char digits[] = "01234567 \0/8";
        for (int i = 124; i < 136; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            b.data[i] = k % 2 ? (uint8_t)digits[(seed >> 40) % 12] : (uint8_t)(seed >> 40);
        }
        seal(b.data);
        walk(b.data, b.len, false, &s, &skips, NULL);
        T_OK(!s.outside);
    }
    fl_bytes_free(&b);
}

static void test_numbers(void)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t len;
        int err;
        uint64_t value;
    } cases[] = {
        { "octal", "00000000017\0", 12, 0, 15 },
        { "space at the end", "0000000017 \0", 12, 0, 15 },
        { "spaces first", "      17 \0\0\0", 12, 0, 15 },
        { "fills the field", "777777777777", 12, 0, 68719476735 },
        { "empty", "\0\0\0\0\0\0\0\0\0\0\0\0", 12, 0, 0 },
        { "no octal digit", "00000000018\0", 12, FL_ERR(EBADMSG), 0 },
        { "minus", "-0000000017\0", 12, FL_ERR(EBADMSG), 0 },
        { "base-256", "\x80\0\0\0\0\0\0\x02\0\0\0\0", 12, 0, 8589934592 },
        { "base-256, zero bytes inside", "\x80\0\0\0\0\0\0\x01\0\0\0\x07", 12, 0, 4294967303 },
        { "base-256, largest", "\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12, 0, INT64_MAX },
        { "base-256, 64 bits", "\x80\0\0\0\x80\0\0\0\0\0\0\0", 12, FL_ERR(ERANGE), 0 },
        { "base-256, 65 bits", "\x80\0\0\x01\0\0\0\0\0\0\0\0", 12, FL_ERR(ERANGE), 0 },
        { "base-256, negative", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12,
          FL_ERR(ERANGE), 0 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        uint64_t value = 0;
        t_case(cases[i].name);
        T_EQ(fl_tar_number((const uint8_t *)cases[i].bytes, cases[i].len, &value), cases[i].err);
        if (!cases[i].err)
            T_EQ(value, cases[i].value);
    }
}

static void test_pax_records(void)
{
    static const struct {
        const char *name, *records;
        int err;
        const char *path;
        int64_t size; // -1: none
    } cases[] = {
        { "path", "14 path=a.jpg\n", 0, "a.jpg", -1 },
        { "bytes, not characters", "13 path=\xC3\xA9\xC3\xA9\n", 0, "\xC3\xA9\xC3\xA9", -1 },
        { "size", "16 size=8589934\n", 0, NULL, 8589934 },
        { "others are passed over", "30 mtime=1350244992.023960108\n14 path=b.jpg\n", 0, "b.jpg",
          -1 },
        { "value with = and line end", "16 path=a=\nb.jp\n", 0, "a=\nb.jp", -1 },
        { "taken back", "14 path=a.jpg\n8 path=\n", 0, NULL, -1 },
        { "length too long", "99 path=a.jpg\n", FL_ERR(EBADMSG), NULL, -1 },
        { "length too short", "3 path=a.jpg\n", FL_ERR(EBADMSG), NULL, -1 },
        { "length of zero", "0 path=a.jpg\n", FL_ERR(EBADMSG), NULL, -1 },
        { "length overflows", "99999999999999999999 path=a\n", FL_ERR(EBADMSG), NULL, -1 },
        { "no length", "path=a.jpg\n", FL_ERR(EBADMSG), NULL, -1 },
        { "no =", "9 path a\n", FL_ERR(EBADMSG), NULL, -1 },
        { "no line end", "14 path=a.jpgX", FL_ERR(EBADMSG), NULL, -1 },
        { "size is no number", "12 size=1e3\n", FL_ERR(EBADMSG), NULL, -1 },
        { "size overflows", "28 size=9999999999999999999\n", FL_ERR(EBADMSG), NULL, -1 },
        { "negative size", "11 size=-1\n", FL_ERR(EBADMSG), NULL, -1 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_tar_ext ext = { 0 };
        const char *why = NULL;
        t_case(cases[i].name);
        T_EQ(fl_tar_pax((const uint8_t *)cases[i].records, strlen(cases[i].records), &ext, &why),
             cases[i].err);
        if (cases[i].err) {
            T_OK(why != NULL);
            continue;
        }
        T_EQ(ext.has_name, cases[i].path != NULL);
        if (cases[i].path)
            T_STR(ext.name, cases[i].path);
        T_EQ(ext.has_size ? (int64_t)ext.size : -1, cases[i].size);
    }
}

static void test_kinds(void)
{
    struct fl_bytes b = { 0 };
    struct seen s;
    struct fl_skips skips;

    t_case("what is no file is counted");
    header(&b, USTAR, "train/", NULL, 0, '5');
    header(&b, V7, "old/", NULL, 0, '0');
    header(&b, USTAR, "train/link.jpg", NULL, 77, '1'); // a size, but no contents
    header(&b, USTAR, "train/soft.jpg", NULL, 0, '2');
    header(&b, USTAR, "dev", NULL, 0, '3');
    header(&b, USTAR, "fifo", NULL, 0, '6');
    header(&b, GNU, "label", NULL, 0, 'V');
    header(&b, GNU, "dump", NULL, 5, 'D');
    put(&b, "abcde", 5);
    pad(&b);
    member(&b, USTAR, "train/._a.jpg", "fork", 4);
    member(&b, USTAR, "__MACOSX/train/a.jpg", "fork", 4);
    member(&b, USTAR, "train/.DS_Store", "x", 1);
    member(&b, USTAR, "__meta__/info.json", "{}", 2);
    member(&b, USTAR, "train/a.jpg", "data", 4);
    end(&b);
    T_EQ(walk(b.data, b.len, false, &s, &skips, NULL), 0);
    T_EQ(s.n, 1);
    T_EQ(skips.n[FL_SKIP_DIRECTORY], 2);
    T_EQ(skips.n[FL_SKIP_LINK], 2);
    T_EQ(skips.n[FL_SKIP_DEVICE], 2);
    T_EQ(skips.n[FL_SKIP_TYPE], 2);
    T_EQ(skips.n[FL_SKIP_SIDECAR], 4);
    T_EQ(walk(b.data, b.len, true, &s, &skips, NULL), 0); // the off switch
    T_EQ(s.n, 5);
    T_EQ(skips.n[FL_SKIP_SIDECAR], 0);
    fl_bytes_free(&b);
}

static void refuse(const char *name, struct fl_bytes *b, int err, const char *text)
{
    struct seen s;
    struct fl_skips skips;

    t_case(name);
    T_EQ(walk(b->data, b->len, false, &s, &skips, NULL), err);
    T_HAS(fl_last_error()->message, text);
    fl_bytes_free(b);
}

static void test_refusals(void)
{
    struct fl_bytes b = { 0 };
    uint8_t junk[512];

    header(&b, GNU, "big.bin", NULL, 0, 'S');
    end(&b);
    refuse("GNU sparse", &b, FL_ERR(ENOTSUP), "\"big.bin\" at byte 0 is a sparse file");

    pax(&b, 'x', "GNU.sparse.name", "real/big.bin");
    header(&b, PAX, "GNUSparseFile.0/big.bin", NULL, 0, '0');
    end(&b);
    refuse("pax sparse", &b, FL_ERR(ENOTSUP), "\"real/big.bin\" at byte 0 is a sparse file");

    header(&b, GNU, "rest.bin", NULL, 0, 'M');
    end(&b);
    refuse("multi-volume", &b, FL_ERR(ENOTSUP), "continues from another volume");

    put(&b, "\x1F\x8B\x08\0\0\0\0\0", 8);
    refuse("gzip", &b, FL_ERR(ENOTSUP), "a gzip file");
    put(&b, "\x28\xB5\x2F\xFD....", 8);
    refuse("zstd", &b, FL_ERR(ENOTSUP), "a zstd file");

    refuse("empty", &b, FL_ERR(EBADMSG), "the archive is cut");
    memset(junk, 'x', sizeof(junk));
    put(&b, junk, sizeof(junk));
    refuse("no tar", &b, FL_ERR(EBADMSG), "at byte 0: its checksum does not fit");

    member(&b, USTAR, "a.jpg", "1", 1);
    end(&b);
    member(&b, USTAR, "b.jpg", "2", 1);
    end(&b);
    refuse("two archives joined", &b, FL_ERR(EBADMSG), "data behind the end of the archive");

    pax(&b, 'x', "path", "lost.jpg");
    end(&b);
    refuse("extension without a member", &b, FL_ERR(EBADMSG),
           "between an extension header and its member");
    pax(&b, 'x', "path", "lost.jpg");
    refuse("extension at the very end", &b, FL_ERR(EBADMSG), "the archive is cut");

    pax(&b, 'x', "size", "9223372036854775807");
    member(&b, PAX, "a.jpg", "1", 1);
    end(&b);
    refuse("size beyond the file", &b, FL_ERR(EBADMSG), "\"a.jpg\" at byte 0: the archive is cut");

    header(&b, GNU, "././@LongLink", NULL, 1u << 30, 'L');
    end(&b);
    refuse("extension beyond the file", &b, FL_ERR(EBADMSG), "the archive is cut");
}

static void test_overrides(void)
{
    struct fl_bytes b = { 0 };
    struct seen s;
    struct fl_skips skips;
    uint64_t hash[2];

    t_case("pax size beats the header's");
    pax(&b, 'x', "size", "600");
    header(&b, PAX, "a.bin", NULL, 1, '0');
    uint8_t data[600];
    memset(data, 'd', sizeof(data));
    put(&b, data, sizeof(data));
    pad(&b);
    member(&b, PAX, "b.bin", "b", 1);
    end(&b);
    T_EQ(walk(b.data, b.len, false, &s, &skips, &hash[0]), 0);
    T_EQ(s.n, 2);
    T_EQ(s.sizes[0], 600);
    T_STR(s.names[1], "b.bin");

    t_case("the hash sees labels and headers, not pictures");
    b.data[1024 + 512] ^= 1; // first byte of a.bin's 600
    T_EQ(walk(b.data, b.len, false, &s, &skips, &hash[1]), 0);
    T_OK(hash[0] == hash[1]);
    b.data[1024 + 512 + 1024 + 512] ^= 1; // the one byte of b.bin
    T_EQ(walk(b.data, b.len, false, &s, &skips, &hash[1]), 0);
    T_OK(hash[0] != hash[1]);
    fl_bytes_free(&b);

    t_case("a name of 100 bytes has no end");
    char name[101];
    memset(name, 'a', 96);
    strcpy(name + 96, ".jpg");
    header(&b, V7, name, NULL, 0, '0');
    end(&b);
    T_EQ(walk(b.data, b.len, false, &s, &skips, NULL), 0);
    T_STR(s.names[0], name);
    fl_bytes_free(&b);

    t_case("signed header sums of old writers");
    header(&b, V7, "\xC3\xA9.jpg", NULL, 0, '0');
    end(&b);
    int sum = 0;
    memset(b.data + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (int8_t)b.data[i];
    snprintf((char *)b.data + 148, 8, "%06o", (unsigned)sum);
    T_EQ(walk(b.data, b.len, false, &s, &skips, NULL), 0);
    T_EQ(s.n, 1);
    fl_bytes_free(&b);
}

static void test_names(void)
{
    static const struct {
        const char *name, *key, *field;
    } cases[] = {
        { "a.jpg", "a", "jpg" },
        { "train/a.b/cat.seg.PNG", "train/a.b/cat", "seg.png" },
        { "a.b/c.d/e", NULL, NULL },
        { "noext", NULL, NULL },
        { "dir/", NULL, NULL },
        { "x/000.jpg.zst", "x/000", "jpg.zst" },
        { ".hidden", NULL, NULL },
        { "d/.hidden.jpg", "d/.hidden", "jpg" },
        { "d/..x.jpg", "d/..x", "jpg" },
        { "a.", NULL, NULL },
        { "a..jpg", "a", ".jpg" },
        { "./a.jpg", "./a", "jpg" },
        { "", NULL, NULL },
    };
    static const char *const sidecars[] = { "._a.jpg",     "x/._a.jpg", "__MACOSX/a.jpg",
                                            "a/.DS_Store", "THUMBS.DB", "x/desktop.ini",
                                            "@eaDir/a.jpg" };
    static const char *const plain[] = { "a.jpg", "_a.jpg",   ".a.jpg",
                                         "._",    "DS_Store", "MACOSX/a.jpg" };
    char field[FL_FIELD_NAME_MAX];
    size_t len;

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].name);
        const int err = fl_name_split(cases[i].name, strlen(cases[i].name), &len, field);
        T_EQ(err, cases[i].key ? 0 : FL_ERR(ENOENT));
        if (cases[i].key) {
            T_STR(field, cases[i].field);
            T_OK(len == strlen(cases[i].key) && !memcmp(cases[i].name, cases[i].key, len));
        }
    }
    t_case("long field");
    char name[80] = "a.";
    memset(name + 2, 'f', 63);
    T_EQ(fl_name_split(name, 65, &len, field), 0);
    T_EQ(fl_name_split(name, 66, &len, field), FL_ERR(E2BIG));
    t_case("sidecars");
    for (size_t i = 0; i < T_LEN(sidecars); i++)
        T_OK(fl_name_is_sidecar(sidecars[i], strlen(sidecars[i])));
    for (size_t i = 0; i < T_LEN(plain); i++)
        T_OK(!fl_name_is_sidecar(plain[i], strlen(plain[i])));
    T_OK(fl_name_is_meta("__meta__", 8) && fl_name_is_meta("__x__/a.b", 9));
    T_OK(!fl_name_is_meta("__x/a__", 7) && !fl_name_is_meta("a/__x__", 7) &&
         !fl_name_is_meta("___", 3));
}

static void test_integers(void)
{
    static const struct {
        const char *text;
        bool ok;
        long long value;
    } cases[] = {
        { "0", true, 0 },      { "7\n", true, 7 },
        { "-12", true, -12 },  { "999999999999999999", true, 999999999999999999 },
        { "", false, 0 },      { "\n", false, 0 },
        { "-", false, 0 },     { "007", false, 0 },
        { "-0", false, 0 },    { "+1", false, 0 },
        { " 1", false, 0 },    { "1 ", false, 0 },
        { "1.0", false, 0 },   { "0x1", false, 0 },
        { "1\n\n", false, 0 }, { "1000000000000000000", false, 0 },
        { "cat", false, 0 },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        long long value = -1;
        t_case(cases[i].text);
        T_EQ(fl_parse_int(cases[i].text, strlen(cases[i].text), &value), cases[i].ok);
        if (cases[i].ok)
            T_EQ(value, cases[i].value);
    }
}

int main(void)
{
    test_dialects();
    test_cuts();
    test_damage();
    test_numbers();
    test_pax_records();
    test_kinds();
    test_refusals();
    test_overrides();
    test_names();
    test_integers();
    return t_done();
}
