/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/encode.h"

#include <string.h>

#include "base/err.h"
#include "jpeg/codec.h"

#define CHUNK 65536

/* Destination of the codec: an array that grows. */
struct sink {
    struct jpeg_destination_mgr mgr; // first
    struct fl_bytes *out;
    struct fl_codec *codec;
    bool full; // out of memory
};

static void grow(struct sink *s)
{
    uint8_t *room = fl_bytes_room(s->out, CHUNK);

    if (!room) {
        s->full = true;
        longjmp(s->codec->jump, 1);
    }
    s->mgr.next_output_byte = room;
    s->mgr.free_in_buffer = CHUNK;
}

static void init_destination(j_compress_ptr cinfo)
{
    grow((struct sink *)cinfo->dest);
}

static boolean empty_output_buffer(j_compress_ptr cinfo)
{
    struct sink *s = (struct sink *)cinfo->dest;

    s->out->len += CHUNK; // called when all of it is used, whatever free_in_buffer says
    grow(s);
    return TRUE;
}

static void term_destination(j_compress_ptr cinfo)
{
    struct sink *s = (struct sink *)cinfo->dest;

    s->out->len += CHUNK - s->mgr.free_in_buffer;
}

static void settings(j_compress_ptr cinfo, const struct fl_jpeg_encode *e)
{
    cinfo->image_width = e->width;
    cinfo->image_height = e->height;
    cinfo->input_components = e->channels;
    cinfo->in_color_space = e->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(cinfo);
    jpeg_set_quality(cinfo, e->quality, TRUE);
    cinfo->dct_method = JDCT_ISLOW;
    cinfo->optimize_coding = TRUE;
    if (e->channels == 3) {
        cinfo->comp_info[0].h_samp_factor = e->h;
        cinfo->comp_info[0].v_samp_factor = e->v;
    }
}

static void encode(j_compress_ptr cinfo, const uint8_t *pixels, size_t stride,
                   const struct fl_jpeg_encode *e)
{
    settings(cinfo, e);
    jpeg_start_compress(cinfo, TRUE);
    if (e->icc_len)
        jpeg_write_icc_profile(cinfo, e->icc, (unsigned)e->icc_len);
    while (cinfo->next_scanline < cinfo->image_height) {
        // The codec's rows are not const, but it only reads them.
        const uint8_t *line = pixels + cinfo->next_scanline * stride;
        JSAMPROW row;
        memcpy(&row, &line, sizeof(row));
        jpeg_write_scanlines(cinfo, &row, 1);
    }
    jpeg_finish_compress(cinfo);
}

int fl_jpeg_encode(const uint8_t *pixels, size_t stride, const struct fl_jpeg_encode *e,
                   struct fl_bytes *out, FlError *err)
{
    struct jpeg_compress_struct cinfo;
    struct fl_codec codec;
    struct sink sink = { .mgr = { .init_destination = init_destination,
                                  .empty_output_buffer = empty_output_buffer,
                                  .term_destination = term_destination },
                         .out = out,
                         .codec = &codec };
    const size_t start = out->len;

    memset(&cinfo, 0, sizeof(cinfo));
    cinfo.err = fl_codec_init(&codec);
    if (setjmp(codec.jump)) {
        jpeg_destroy_compress(&cinfo);
        out->len = start;
        if (sink.full || codec.code == FL_ERR(ENOMEM))
            return fl_err_set(err, FL_ERR(ENOMEM), FL_STAGE_DECODE,
                              "no memory to encode a picture");
        return fl_err_set(err, FL_ERR(EINVAL), FL_STAGE_DECODE, "a picture cannot be encoded: %s",
                          codec.message);
    }
    jpeg_create_compress(&cinfo);
    cinfo.dest = &sink.mgr;
    encode(&cinfo, pixels, stride, e);
    jpeg_destroy_compress(&cinfo);
    return 0;
}
