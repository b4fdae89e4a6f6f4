/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a tar archive: v7, ustar, GNU and pax; told apart by their content (POSIX.1-2017, pax;
 * GNU tar manual, "Basic Tar Format"). Pure functions on bytes; for tar.c and the tests. */
#ifndef FL_FORMATS_TAR_HEADER_H
#define FL_FORMATS_TAR_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_TAR_BLOCK 512u
#define FL_TAR_NAME_MAX 4096u // bytes of a name, NUL included

/* What a header block says. */
struct fl_tar_header {
    char type;     // '0' regular, '5' directory, 'L', 'x', ...; '\0' is given as '0'
    uint64_t size; // bytes
    size_t name_len;
    char name[FL_TAR_NAME_MAX]; // prefix and name joined
};

/* What extension records say of the next member (or, global ones, of all that follow). */
struct fl_tar_ext {
    bool has_name, has_size;
    bool sparse; // a sparse member: its bytes are not the file's
    uint64_t size;
    size_t name_len;
    char name[FL_TAR_NAME_MAX];
};

/* Nothing but zeros? */
bool fl_tar_is_zero(const uint8_t block[FL_TAR_BLOCK]);

/* A number: octal digits (leading spaces, ended by space, NUL or the field), or base-256. Returns 0;
 * FL_ERR(EBADMSG): anything else; FL_ERR(ERANGE): negative or over INT64_MAX. */
int fl_tar_number(const uint8_t *field, size_t len, uint64_t *value);

/* Parse a header block. Returns 0; FL_ERR(EBADMSG) with what is wrong in *why: a static string. */
int fl_tar_parse(const uint8_t block[FL_TAR_BLOCK], struct fl_tar_header *h, const char **why);

/* Take over pax records ("LENGTH KEY=VALUE\n", lengths in bytes). Returns as fl_tar_parse(). */
int fl_tar_pax(const uint8_t *records, size_t len, struct fl_tar_ext *ext, const char **why);

#endif
