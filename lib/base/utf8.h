/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FL_BASE_UTF8_H
#define FL_BASE_UTF8_H

#include <stddef.h>

/* Length of the UTF-8 sequence (RFC 3629) at s, which ends with a NUL; 0 if it is not one: overlong, a surrogate, cut or
 * too large. */
size_t fl_utf8_len(const unsigned char *s);

#endif
