/* SPDX-License-Identifier: Apache-2.0 */
/* Names of samples in a shard. A sample keeps its source's key, so that a member's name and an error
 * message say where a picture came from; only what would make the name ambiguous is changed, and all of it
 * can be undone:
 *
 *   - "./" at the beginning goes away;
 *   - "%", control characters, each dot of the last path part (the first of them would end the key), path
 *     parts "." and ".." and a slash at the beginning (nobody's extraction may leave its folder) are written
 *     as "%" and two hexadecimal digits; so is the first byte of every part of a name that readers
 *     skip (sidecars of desktop systems, `__meta__/`);
 *   - an empty last part becomes "%-";
 *   - the n-th sample with the same key in one shard, n >= 2, gets "%~n" at its end. */
#ifndef FL_SHARD_KEY_H
#define FL_SHARD_KEY_H

#include <stddef.h>
#include <stdint.h>

/* Write the name of a sample, NUL-terminated; `copy` is n above, 1 for the first. Returns its length, or
 * FL_ERR(E2BIG), without a sentence, if it does not fit in `cap` bytes. */
int fl_shard_key(const char *key, size_t len, uint64_t copy, char *out, size_t cap);

/* The way back: the source's key, NUL-terminated. Returns its length; FL_ERR(EINVAL): no such name;
 * FL_ERR(E2BIG). */
int fl_shard_key_source(const char *name, size_t len, char *out, size_t cap);

/* How often each key came by in this shard. */
struct fl_shard_keys {
    uint64_t *hash; // open addressing; 0: free
    uint32_t *count;
    size_t cap, used;
};

void fl_shard_keys_fini(struct fl_shard_keys *k);
void fl_shard_keys_clear(struct fl_shard_keys *k);

/* Count one more sample of this key; *copy gets how many there are now. Two keys of one hash count as the
 * same, which costs a needless suffix and nothing else. Returns 0 or FL_ERR(ENOMEM). */
int fl_shard_keys_add(struct fl_shard_keys *k, const char *key, size_t len, uint64_t *copy);

#endif
