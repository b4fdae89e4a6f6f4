/* SPDX-License-Identifier: Apache-2.0 */
/* The header parser on JPEGs of all kinds, on every prefix, on damage, and on EXIF blocks. */
#include "jpeg/exif.h"
#include "jpeg/header.h"

#include "make_jpeg.h"
#include "t.h"

static void test_kinds(void)
{
    static const struct {
        struct mj_spec spec;
        int sof, colour;
        const char *layout;
    } cases[] = {
        { { .name = "4:4:4", .components = 3 }, FL_SOF_BASELINE, FL_JPEG_YCBCR, "4:4:4" },
        { { .name = "4:2:0", .components = 3, .sh = 2, .sv = 2 },
          FL_SOF_BASELINE,
          FL_JPEG_YCBCR,
          "4:2:0" },
        { { .name = "4:2:2", .components = 3, .sh = 2, .sv = 1 },
          FL_SOF_BASELINE,
          FL_JPEG_YCBCR,
          "4:2:2" },
        { { .name = "4:4:0", .components = 3, .sh = 1, .sv = 2 },
          FL_SOF_BASELINE,
          FL_JPEG_YCBCR,
          "4:4:0" },
        { { .name = "4:1:1", .components = 3, .sh = 4, .sv = 1 },
          FL_SOF_BASELINE,
          FL_JPEG_YCBCR,
          "4:1:1" },
        { { .name = "3x1", .components = 3, .sh = 3, .sv = 1 },
          FL_SOF_BASELINE,
          FL_JPEG_YCBCR,
          "unusual sampling" },
        { { .name = "grey", .components = 1 }, FL_SOF_BASELINE, FL_JPEG_GREY, "grey" },
        { { .name = "progressive", .components = 3, .progressive = true },
          FL_SOF_PROGRESSIVE,
          FL_JPEG_YCBCR,
          "4:4:4" },
        { { .name = "arithmetic", .components = 3, .arithmetic = true },
          FL_SOF_ARITHMETIC,
          FL_JPEG_YCBCR,
          "4:4:4" },
        { { .name = "RGB", .components = 3, .rgb = true }, FL_SOF_BASELINE, FL_JPEG_RGB, "RGB" },
        { { .name = "RGB by ids", .components = 3, .rgb = true, .no_markers = true },
          FL_SOF_BASELINE,
          FL_JPEG_RGB,
          "RGB" },
        { { .name = "CMYK", .components = 4 }, FL_SOF_BASELINE, FL_JPEG_CMYK, "CMYK" },
        { { .name = "YCCK", .components = 4, .ycck = true },
          FL_SOF_BASELINE,
          FL_JPEG_YCCK,
          "YCCK" },
        { { .name = "16-bit tables", .components = 1, .quality = -1 },
          FL_SOF_EXTENDED,
          FL_JPEG_GREY,
          "grey" },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct mj_spec s = cases[i].spec;
        struct fl_jpeg_header h, g;
        FlError err = { 0 };
        s.w = 301;
        s.h = 77;
        s.restart = 5;
        t_case(s.name);
        struct mj_bytes j = mj_make(&s);
        T_EQ(fl_jpeg_parse(j.data, j.len, &h, &err), 0);
        T_EQ(h.width, 301);
        T_EQ(h.height, 77);
        T_EQ(h.components, s.components);
        T_EQ(h.precision, 8);
        T_EQ(h.sof, cases[i].sof);
        T_EQ(h.colour, cases[i].colour);
        T_EQ(h.restart, 5);
        T_EQ(h.orientation, 1);
        T_EQ(h.max_h, s.sh ? s.sh : 1);
        T_STR(fl_jpeg_layout_name(&h), cases[i].layout);
        T_EQ(j.data[h.sof_offset + 1], 0xC0 + cases[i].sof);
        T_EQ(j.data[h.sos_offset + 1], 0xDA);
        T_EQ(fl_jpeg_count_scans(j.data, j.len, &h, 100), s.progressive ? 10 : 1);
        T_EQ(fl_jpeg_count_scans(j.data, j.len, &h, 3), s.progressive ? 4 : 1);
        // Every beginning: more is asked for until the frame, then size and colour are the same.
        for (size_t n = 0; n < h.scan_offset + 3; n++) {
            uint8_t *p = malloc(n ? n : 1);
            memcpy(p, j.data, n);
            const int r = fl_jpeg_parse(p, n, &g, &err);
            T_OK(r == 0 || r == FL_ERR(EAGAIN));
            T_EQ(r == 0, n >= h.sof_offset + 10 + 3 * (size_t)s.components);
            T_OK(r || (g.width == 301 && g.height == 77 && g.colour == h.colour));
            T_EQ(!r && g.scan_offset, n >= h.scan_offset);
            free(p);
        }
        free(j.data);
    }
}

static void test_broken(void)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
        int code;
        const char *text;
    } cases[] = {
        { "empty", "", 0, FL_ERR(EAGAIN), "end before" },
        { "png", "\x89PNG", 4, FL_ERR(EBADMSG), "not a JPEG" },
        { "text", "hello", 5, FL_ERR(EBADMSG), "not a JPEG" },
        { "start again", "\xFF\xD8\xFF\xD8", 4, FL_ERR(EBADMSG), "second start" },
        { "only the ends", "\xFF\xD8\xFF\xD9", 4, FL_ERR(EBADMSG), "before its first scan" },
        { "segment of 1", "\xFF\xD8\xFF\xE0\0\1xx", 8, FL_ERR(EBADMSG), "shorter" },
        { "segment cut", "\xFF\xD8\xFF\xE0\xFF\xFFxx", 8, FL_ERR(EAGAIN), "end before" },
        { "scan first", "\xFF\xD8\xFF\xDA\0\3x", 7, FL_ERR(EBADMSG), "scan before" },
        { "frame of 3", "\xFF\xD8\xFF\xC0\0\3x", 7, FL_ERR(EBADMSG), "too short" },
        { "5 components", "\xFF\xD8\xFF\xC0\0\x17\x08\0\1\0\1\5xxxxxxxxxxxxxxx", 27,
          FL_ERR(ENOTSUP), "more than 4" },
        { "fill bytes only", "\xFF\xD8\xFF\xFF\xFF\xFF", 6, FL_ERR(EAGAIN), "end before" },
    };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_jpeg_header h;
        FlError err = { 0 };
        t_case(cases[i].name);
        T_EQ(fl_jpeg_parse((const uint8_t *)cases[i].bytes, cases[i].n, &h, &err), cases[i].code);
        T_HAS(err.message, cases[i].text);
        T_OK(err.offset <= cases[i].n);
        T_EQ(fl_jpeg_parse((const uint8_t *)cases[i].bytes, cases[i].n, &h, NULL), cases[i].code);
    }
}

/* An EXIF block with one directory of the entries given, orientation last. */
static size_t exif(uint8_t *b, bool little, int before, int type, uint32_t value)
{
    size_t n = 0;
    const uint16_t tags[2] = { 0x010F, 0x0112 };

    memcpy(b, little ? "Exif\0\0II*\0\x08\0\0\0" : "Exif\0\0MM\0*\0\0\0\x08", 14);
    n = 14;
    b[n + (little ? 0 : 1)] = (uint8_t)(before + 1);
    b[n + (little ? 1 : 0)] = 0;
    n += 2;
    for (int i = 0; i <= before; i++, n += 12) {
        const uint16_t tag = tags[i == before];
        memset(b + n, 0, 12);
        b[n + (little ? 0 : 1)] = (uint8_t)tag;
        b[n + (little ? 1 : 0)] = (uint8_t)(tag >> 8);
        b[n + (little ? 2 : 3)] = (uint8_t)type;
        b[n + (little ? 4 : 7)] = 1;
        for (int k = 0; k < (type == 3 ? 2 : 4); k++)
            b[n + 8 + (size_t)(little ? k : (type == 3 ? 1 : 3) - k)] = (uint8_t)(value >> 8 * k);
    }
    return n;
}

static void test_exif(void)
{
    uint8_t b[256];

    t_case("exif");
    for (int little = 0; little < 2; little++)
        for (int before = 0; before < 3; before++)
            for (uint32_t v = 0; v < 10; v++)
                for (int type = 3; type <= 4; type++) {
                    const size_t n = exif(b, little, before, type, v);
                    T_EQ(fl_exif_orientation(b, n), v >= 1 && v <= 8 ? (int)v : 1);
                    for (size_t cut = 0; cut < n; cut++) { // never more than there is
                        uint8_t *p = malloc(cut ? cut : 1);
                        memcpy(p, b, cut);
                        T_EQ(fl_exif_orientation(p, cut), 1);
                        free(p);
                    }
                }
    const size_t n = exif(b, true, 0, 3, 6);
    uint8_t c[256];
    uint32_t s = 7;
    for (int i = 0; i < 20000; i++) {
        memcpy(c, b, n);
        for (int k = 0; k < 3; k++)
            c[mj_noise(&s) % n] = (uint8_t)mj_noise(&s);
        const int o = fl_exif_orientation(c, n);
        T_OK(o >= 1 && o <= 8);
    }
    // A broken block does not fail the picture; the first block counts.
    const struct mj_spec spec = { .w = 9, .h = 9, .components = 1 };
    struct mj_bytes j = mj_make(&spec);
    struct fl_jpeg_header h;
    for (int broken = 0; broken < 2; broken++) {
        const size_t m = exif(b, false, 1, 3, 8);
        uint8_t *p = malloc(j.len + m + 4);
        memcpy(p, j.data, 2);
        memcpy(p + 2, "\xFF\xE1", 2);
        p[4] = 0;
        p[5] = (uint8_t)(m + 2);
        memcpy(p + 6, b, m);
        if (broken)
            memset(p + 6 + 10, 0xFF, 4);
        memcpy(p + 6 + m, j.data + 2, j.len - 2);
        T_EQ(fl_jpeg_parse(p, j.len + m + 4, &h, NULL), 0);
        T_EQ(h.orientation, broken ? 1 : 8);
        free(p);
    }
    free(j.data);
}

static void test_mutations(void)
{
    const struct mj_spec spec = { .w = 99, .h = 50, .components = 3, .sh = 2, .sv = 2 };
    struct mj_bytes j = mj_make(&spec);
    uint8_t *p = malloc(j.len);
    uint32_t s = 31;

    t_case("mutations");
    for (int i = 0; i < 50000; i++) {
        const size_t n = mj_noise(&s) % 700;
        struct fl_jpeg_header h;
        FlError err;
        memcpy(p, j.data, n);
        for (int k = 0; k < 3 && n; k++)
            p[mj_noise(&s) % n] = (uint8_t)(mj_noise(&s) % 3 ? mj_noise(&s) : 0xFF);
        const int r = fl_jpeg_parse(p, n, &h, &err);
        T_OK(r <= 0);
        if (!r) {
            T_OK(h.width > 0 && h.height > 0 && h.components >= 1 && h.components <= 4);
            T_OK(h.scan_offset <= n && h.sof_offset < n);
            T_OK(fl_jpeg_count_scans(p, n, &h, 10) <= 11);
        }
    }
    free(p);
    free(j.data);
}

int main(void)
{
    test_kinds();
    test_broken();
    test_exif();
    test_mutations();
    return t_done();
}
