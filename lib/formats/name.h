/* SPDX-License-Identifier: Apache-2.0 */
/* How a member's name becomes a sample's key and a field. The one rule, used by the tar reader and by
 * the sharder: the first dot of the last path part ends the key; what follows it is the field's name,
 * lower-cased (ASCII). "train/a.b/cat.seg.PNG" is key "train/a.b/cat", field "seg.png". Dots that begin
 * the last part belong to the key: ".hidden.jpg" is key ".hidden", field "jpg"; ".hidden" has no field. */
#ifndef FL_FORMATS_NAME_H
#define FL_FORMATS_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define FL_FIELD_NAME_MAX 64 // NUL included

/* Split `name`; *key_len bytes of it are the key. Returns 0 and the field, or FL_ERR(ENOENT): the
 * name has no field part; FL_ERR(E2BIG): the field's name does not fit. Sets no message. */
int fl_name_split(const char *name, size_t len, size_t *key_len, char field[FL_FIELD_NAME_MAX]);

/* Is one part of the path a sidecar of a desktop system: `._x`, `.DS_Store`, `__MACOSX`, `Thumbs.db`,
 * `desktop.ini`, `@eaDir`, ...? */
bool fl_name_is_sidecar(const char *name, size_t len);

/* A member about the archive itself, by the rule of WebDataset: its first path part is `__...__`. */
bool fl_name_is_meta(const char *name, size_t len);

/* May a field of this name hold pictures: its last part is jpg, jpeg, png, ...? The content decides. */
bool fl_name_is_image(const char *field);

/* Does a field of this name hold an integer, if its content is one: last part cls, class, label,
 * ...? */
bool fl_name_is_int(const char *field);

/* Canonical decimal integer of at most 18 digits, one line end at its end allowed. */
bool fl_parse_int(const void *data, size_t len, long long *value);

#endif
