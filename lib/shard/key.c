/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/key.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "formats/name.h"

struct out {
    char *text;
    size_t len, cap;
};

static void put(struct out *o, char c)
{
    if (o->len + 1 < o->cap)
        o->text[o->len] = c;
    o->len++;
}

static void put_escaped(struct out *o, char c)
{
    static const char hex[] = "0123456789ABCDEF";

    put(o, '%');
    put(o, hex[(unsigned char)c >> 4]);
    put(o, hex[(unsigned char)c & 15]);
}

/* One path part. `last`: its dots would be taken for the end of the key. `mask`: hide its first byte. */
static void put_part(struct out *o, const char *part, size_t len, bool last, bool mask)
{
    const bool dots = last || (len == 1 && part[0] == '.') || (len == 2 && !memcmp(part, "..", 2));

    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)part[i];
        if (c == '%' || c < 0x20 || c == 0x7F || (c == '.' && dots) || (!i && mask))
            put_escaped(o, part[i]);
        else
            put(o, part[i]);
    }
    if (last && !len) {
        put(o, '%');
        put(o, '-');
    }
}

static void put_key(struct out *o, const char *key, size_t len, bool mask)
{
    while (len >= 2 && !memcmp(key, "./", 2)) {
        key += 2;
        len -= 2;
    }
    if (len && key[0] == '/') {
        put_escaped(o, '/');
        key++;
        len--;
    }
    for (;;) {
        const char *slash = memchr(key, '/', len);
        const size_t n = slash ? (size_t)(slash - key) : len;
        put_part(o, key, n, !slash, mask);
        if (!slash)
            return;
        put(o, '/');
        key += n + 1;
        len -= n + 1;
    }
}

static int finish(struct out *o)
{
    if (o->len >= o->cap)
        return FL_ERR(E2BIG);
    o->text[o->len] = 0;
    return (int)o->len;
}

int fl_shard_key(const char *key, size_t len, uint64_t copy, char *out, size_t cap)
{
    struct out o = { .text = out, .cap = cap };

    put_key(&o, key, len, false);
    if (o.len < cap && (fl_name_is_sidecar(out, o.len) || fl_name_is_meta(out, o.len))) {
        o.len = 0;
        put_key(&o, key, len, true);
    }
    if (copy > 1) {
        char suffix[32];
        snprintf(suffix, sizeof(suffix), "%%~%llu", (unsigned long long)copy);
        for (const char *s = suffix; *s; s++)
            put(&o, *s);
    }
    return finish(&o);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int fl_shard_key_source(const char *name, size_t len, char *out, size_t cap)
{
    struct out o = { .text = out, .cap = cap };

    for (size_t i = 0; i < len; i++) {
        if (name[i] != '%') {
            put(&o, name[i]);
            continue;
        }
        if (i + 1 < len && name[i + 1] == '~')
            break; // the rest counts copies
        if (i + 1 < len && name[i + 1] == '-') {
            i++;
            continue;
        }
        const int high = i + 2 < len ? hex_digit(name[i + 1]) : -1;
        const int low = i + 2 < len ? hex_digit(name[i + 2]) : -1;
        if (high < 0 || low < 0)
            return FL_ERR(EINVAL);
        put(&o, (char)(high << 4 | low));
        i += 2;
    }
    return finish(&o);
}

void fl_shard_keys_fini(struct fl_shard_keys *k)
{
    free(k->hash);
    free(k->count);
    *k = (struct fl_shard_keys){ 0 };
}

void fl_shard_keys_clear(struct fl_shard_keys *k)
{
    if (k->cap)
        memset(k->hash, 0, k->cap * sizeof(*k->hash));
    k->used = 0;
}

static size_t find(const struct fl_shard_keys *k, uint64_t hash)
{
    size_t i = hash & (k->cap - 1);

    while (k->hash[i] && k->hash[i] != hash)
        i = (i + 1) & (k->cap - 1);
    return i;
}

static int grow(struct fl_shard_keys *k)
{
    struct fl_shard_keys n = { .cap = k->cap ? k->cap * 2 : 1024, .used = k->used };

    n.hash = calloc(n.cap, sizeof(*n.hash));
    n.count = calloc(n.cap, sizeof(*n.count));
    if (!n.hash || !n.count) {
        fl_shard_keys_fini(&n);
        return fl_err(FL_ERR(ENOMEM), FL_STAGE_PLAN, "no memory for the names of a shard");
    }
    for (size_t i = 0; i < k->cap; i++) {
        if (!k->hash[i])
            continue;
        const size_t j = find(&n, k->hash[i]);
        n.hash[j] = k->hash[i];
        n.count[j] = k->count[i];
    }
    free(k->hash);
    free(k->count);
    k->hash = n.hash;
    k->count = n.count;
    k->cap = n.cap;
    return 0;
}

int fl_shard_keys_add(struct fl_shard_keys *k, const char *key, size_t len, uint64_t *copy)
{
    uint64_t hash = fl_hash64(key, len, 0);
    int err;

    hash += !hash; // 0 means free
    if (k->used * 2 >= k->cap && (err = grow(k)))
        return err;
    const size_t i = find(k, hash);
    if (!k->hash[i]) {
        k->hash[i] = hash;
        k->count[i] = 0;
        k->used++;
    }
    *copy = ++k->count[i];
    return 0;
}
