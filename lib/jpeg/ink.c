/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg/ink.h"

/* a * b / 255 to nearest, exact for bytes. */
static unsigned mul255(unsigned a, unsigned b)
{
    const unsigned t = a * b + 128;
    return (t + (t >> 8)) >> 8;
}

void fl_ink_convert(const uint8_t *cmyk, int pixels, bool inverted, int channels, uint8_t *out)
{
    const uint8_t flip = inverted ? 255 : 0;

    for (int i = 0; i < pixels; i++, cmyk += 4, out += channels) {
        const unsigned light = 255u - (cmyk[3] ^ flip);
        const unsigned r = light - mul255(cmyk[0] ^ flip, light);
        const unsigned g = light - mul255(cmyk[1] ^ flip, light);
        const unsigned b = light - mul255(cmyk[2] ^ flip, light);
        if (channels == 1) {
            out[0] = (uint8_t)((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
            continue;
        }
        out[0] = (uint8_t)r;
        out[1] = (uint8_t)g;
        out[2] = (uint8_t)b;
    }
}
