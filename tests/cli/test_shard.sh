#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline shard: the same bytes whatever the threads and parts; other programs read the shards; wrong calls and bad
# input give one sentence.
. "$(dirname "$0")/lib.sh"

shard()
{
    "$FEEDLINE" shard "$@" --quiet --no-check
}

check "photos to work with" "$FEEDLINE" synth "$work/src" --count 42 --classes 3 --quiet
size=--shard-size=1M

# ---- determinism ----
check "two threads" shard "$work/src" "$work/a" $size --threads 2
check "several shards" test "$(ls "$work/a"/shard-*.tar | wc -l)" -gt 3
check "the same with all pixels compared" "$FEEDLINE" shard "$work/src" "$work/checked" $size --quiet
check "compared, the same bytes" diff -r "$work/a" "$work/checked"
for threads in 1 4; do
    check "$threads threads" shard "$work/src" "$work/b" $size --threads $threads --overwrite
    check "$threads threads, the same bytes" diff -r "$work/a" "$work/b"
done
check "nothing but shards, index and dataset.json" \
    test "$(ls -A "$work/a" | grep -v '^shard-[0-9]*\.tar$' | tr '\n' ' ')" = "dataset.json index.fli "
for parts in 2 3 7; do
    rm -rf "$work/b"
    for ((part = parts - 1; part >= 0; part--)); do
        check "part $part of $parts" shard "$work/src" "$work/b" $size --part $part/$parts
    done
    check "merge $parts parts" "$FEEDLINE" index --merge "$work/b"
    check "$parts parts, the same bytes" diff -r "$work/a" "$work/b"
done
cp -r "$work/src" "$work/copy" # other times, other inodes, another place
find "$work/copy" -name index.fli -delete
check "a copy of the source" shard "$work/copy" "$work/c" $size
check "a copy, the same bytes" diff -r "$work/a" "$work/c"
check "another seed" shard "$work/src" "$work/d" $size --seed 1
check "another order" bash -c "! cmp -s $work/a/shard-000000.tar $work/d/shard-000000.tar"

# ---- parts ----
rm -rf "$work/b"
check "part 1 of 2 alone" shard "$work/src" "$work/b" $size --part 1/2
refuses 1 "shard-000000.tar" index --merge "$work/b"
refuses 1 "unfinished" shard "$work/b" "$work/e" --quiet
check "the rest in one go" shard "$work/src" "$work/b" $size
check "the same bytes again" diff -r "$work/a" "$work/b"
refuses 1 "nothing to merge" index --merge "$work/b"
# Parts in folders of their own, moved together.
for part in 0 1; do
    check "part $part in its own folder" shard "$work/src" "$work/p$part" $size --part $part/2
done
mv "$work/p1"/shard-*.tar "$work/p0/"
mv "$work/p1/.feedline-run"/* "$work/p0/.feedline-run/"
check "merge moved parts" "$FEEDLINE" index --merge "$work/p0"
check "moved parts, the same bytes" diff -r "$work/a" "$work/p0"

# ---- what is in it ----
check "verify" "$FEEDLINE" verify "$work/a" --against "$work/src"
if command -v python3 >/dev/null; then
    cat >"$work/look.py" <<'PY'
import json, sys, glob, os, tarfile
src, dst = sys.argv[1:]
want = {os.path.relpath(p, src)[:-4]: sorted(os.listdir(src)).index(os.path.basename(os.path.dirname(p)))
        for p in glob.glob(src + "/*/*.jpg")}
d = json.load(open(dst + "/dataset.json"))
tars = sorted(glob.glob(dst + "/shard-*.tar"))
assert [s["name"] for s in d["shards"]] == [os.path.basename(t) for t in tars]
assert [s["bytes"] for s in d["shards"]] == [os.path.getsize(t) for t in tars]
assert d["samples"] == len(want) == sum(s["samples"] for s in d["shards"])
assert [c["name"] for c in d["classes"]] == ["class000", "class001", "class002"]
assert [c["samples"] for c in d["classes"]] == [list(want.values()).count(i) for i in range(3)]
assert [f["field"] for f in d["schema"]] == ["cls", "jpg"], d["schema"]
assert d["pictures"]["sliced"] == len(want), d["pictures"]
order = []
for t in tars:
    members = tarfile.open(t).getmembers()
    assert len(members) % 2 == 0
    for cls, jpg in zip(members[::2], members[1::2]):
        key = cls.name[:-4]
        assert (cls.name, jpg.name) == (key + ".cls", key + ".jpg")
        assert int(tarfile.open(t).extractfile(cls).read()) == want.pop(key)
        assert tarfile.open(t).extractfile(jpg).read(2) == b"\xff\xd8"
        for m in (cls, jpg):
            assert (m.mode, m.uid, m.gid, m.mtime, m.uname, m.gname) == (0o644, 0, 0, 0, "", ""), m.get_info()
        order.append(key)
assert not want
assert order != sorted(order)
PY
    check "python3 reads all of it" python3 "$work/look.py" "$work/src" "$work/a"
else
    echo "python3 is missing: its reading of the shards is skipped"
fi

# ---- bytes as they are, order as it is, and a tar source ----
check "no slice, no shuffle" shard "$work/src" "$work/plain" --no-slice --no-shuffle
mkdir "$work/x"
check "extract" tar -xf "$work/plain/shard-000000.tar" -C "$work/x"
for class in class000 class001 class002; do
    check "$class byte for byte" diff -r -x '*.cls' -x index.fli "$work/src/$class" "$work/x/$class"
done
check "source order" bash -c "tar -tf $work/plain/shard-000000.tar | sort -c"
check "shards from shards" shard "$work/plain" "$work/again" --no-slice --no-shuffle
check "the same tar" cmp "$work/plain/shard-000000.tar" "$work/again/shard-000000.tar"
check "slice what was plain" shard "$work/plain" "$work/sliced" $size
check "the same as in one step" bash -c "cat $work/a/*.tar | cmp - <(cat $work/sliced/*.tar)"
check "slicing twice changes nothing" shard "$work/sliced" "$work/twice" $size --no-shuffle
check "the same samples" bash -c "diff <(cat $work/sliced/*.tar | tar -xOif - | cksum) <(cat $work/twice/*.tar | tar -xOif - | cksum)"

# ---- labels by a list ----
printf 'class002\nclass000\nclass001\n' >"$work/classes.txt"
check "class list" shard "$work/copy" "$work/listed" --classes "$work/classes.txt" --no-slice
check "labels by the list" grep -q '{"label": 0, "name": "class002", "samples": 14}' "$work/listed/dataset.json"
refuses 1 "cannot be read" shard "$work/copy" "$work/e" --classes "$work/no.txt"

# ---- lossy ----
check "max side" shard "$work/src" "$work/small" --max-side 64 --quality 80
check "much smaller" test "$(stat -c %s "$work/small/shard-000000.tar")" -lt 400000
check "dataset.json says so" grep -q '"shrunk": 42' "$work/small/dataset.json"

# ---- bad input ----
cp -r "$work/src" "$work/bad"
rm -f "$work/bad/index.fli"
: >"$work/bad/class000/photo000000.jpg"
head -c 20000 "$work/src/class001/photo000001.jpg" >"$work/bad/class001/photo000001.jpg"
echo "this is no picture" >"$work/bad/class002/photo000002.jpg"
check "damaged pictures are kept" shard "$work/bad" "$work/kept" --no-shuffle
cp "$work/check.out" "$work/kept.out"
for n in 0 1 2; do
    check "photo $n is named" grep -q "warning: class00$n/photo00000$n is damaged and kept as it is" "$work/kept.out"
done
check "and counted" grep -q "3 of them damaged" "$work/kept.out"
check "byte for byte" bash -c "tar -xOf $work/kept/shard-000000.tar class001/photo000001.jpg | cmp - $work/bad/class001/photo000001.jpg"

refuses 1 "holds a dataset already" shard "$work/src" "$work/a" --quiet
check "part 0 of 2 with another size" shard "$work/src" "$work/half" $size --part 0/2
refuses 1 "shard-size: 1048576, now 2097152" shard "$work/src" "$work/half" --shard-size 2M --quiet
refuses 1 "seed: 0, now 9" shard "$work/src" "$work/half" $size --seed 9 --quiet
check "overwrite another run" shard "$work/src" "$work/half" --shard-size 2M --overwrite
check "nothing of it is left" bash -c "! ls $work/half | grep -q shard-000004"
mkdir "$work/full"
touch "$work/full/letter.txt"
refuses 1 "holds other files" shard "$work/src" "$work/full" --quiet
refuses 1 "holds other files" shard "$work/src" "$work/full" --quiet --overwrite
refuses 1 "neither inside the other" shard "$work/src" "$work/src/out" --quiet
refuses 1 "neither inside the other" shard "$work/src" "$work/src" --quiet
refuses 1 "$work/nothing" shard "$work/nothing" "$work/e" --quiet
refuses 1 "letter.txt" shard "$work/src" "$work/full/letter.txt" --quiet
refuses 2 "--part wants I/N" shard "$work/src" "$work/e" --part 2/2
refuses 2 "--part wants I/N" shard "$work/src" "$work/e" --part -1/2
refuses 2 "--part wants I/N" shard "$work/src" "$work/e" --part 1
refuses 2 "--quality wants" shard "$work/src" "$work/e" --quality 101
refuses 2 "an argument is missing" shard "$work/src"
check "refused runs have written nothing" test ! -e "$work/e" -a ! -e "$work/src/out"
finish
