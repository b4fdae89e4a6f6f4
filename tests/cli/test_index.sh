#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# feedline index and inspect on archives and folders that are made here (python3's tarfile, GNU tar where it is).
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
cd "$work" || exit 1

# A baseline JPEG of 1 x 1 pixels, grey: enough for a header.
cat >make.py <<'PY'
import io, os, struct, sys, tarfile

def jpeg(width=48, height=32, components=3, orientation=None, progressive=False, comment=0):
    out = b"\xff\xd8"
    if orientation:
        tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(">H", orientation) + b"\0\0\0\0\0\0"
        out += b"\xff\xe1" + struct.pack(">H", len(tiff) + 8) + b"Exif\0\0" + tiff
    while comment > 0:
        n = min(comment, 65000)
        out += b"\xff\xfe" + struct.pack(">H", n + 2) + b"c" * n
        comment -= n
    out += b"\xff\xc2" if progressive else b"\xff\xc0"
    out += struct.pack(">HBHHB", 8 + 3 * components, 8, height, width, components)
    for i in range(components):
        out += bytes([i + 1, 0x22 if i == 0 and components == 3 else 0x11, 0])
    return out + b"\xff\xda" + struct.pack(">HB", 6 + 2 * components, components) + \
        b"".join(bytes([i + 1, 0]) for i in range(components)) + b"\0\x3f\0" + b"scan" * 20 + b"\xff\xd9"

def add(t, name, data, **kw):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for k, v in kw.items():
        setattr(info, k, v)
    t.addfile(info, io.BytesIO(data))

def tar(path, members, **kw):
    with tarfile.open(path, "w", **kw) as t:
        for m in members:
            add(t, *m[:2], **(m[2] if len(m) > 2 else {}))

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
PY
py() { python3 -c "from make import *
$1"; }
field() { "$FEEDLINE" inspect "$1" --json 2>/dev/null | python3 -c "
import json, sys
d = json.load(sys.stdin)
print(*[f'{f[\"name\"]}:{f[\"kind\"]}:{f[\"count\"]}' for f in d['fields']], d['samples'], d['left_out'])"; }

# ---- one rule for names (F01), every dialect (F04, F05) ----
py '
long = "p" * 90 + "/" + "n" * 70
for name, fmt in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
    os.makedirs(name)
    tar(name + "/0.tar", [("a/x.jpg", jpeg()), ("a/x.cls", b"3"), (long + ".jpg", jpeg(64, 16)), (long + ".cls", b"4\n"),
                          ("a.b/é.seg.PNG", b"png"), ("a.b/é.cls", b"-5")], format=fmt)
os.makedirs("ustar")
tar("ustar/0.tar", [("a/x.jpg", jpeg()), ("a/x.cls", b"3"), (long + ".jpg", jpeg(64, 16)), (long + ".cls", b"4\n"),
                    ("a.b/é.seg.PNG", b"png"), ("a.b/é.cls", b"-5")], format=tarfile.USTAR_FORMAT)
'
for d in gnu pax ustar; do
    check "index $d" "$FEEDLINE" index $d --quiet
    check "fields of $d" test "$(field $d)" = "cls:int:3 jpg:bytes:2 seg.png:bytes:1 3 0"
    "$FEEDLINE" inspect $d --sample 1 --out out-$d >/dev/null
    "$FEEDLINE" inspect $d --sample 2 --json >$d.json
done
check "long name, first bytes" cmp out-gnu/*.jpg out-pax/*.jpg
check "label of the long name" test "$(cat out-ustar/*.cls)" = 4
check "same sample in gnu and pax" diff <(sed '/offset\|fingerprint\|path\|bytes\|kind/d' gnu.json) <(sed '/offset\|fingerprint\|path\|bytes\|kind/d' pax.json)
check "key with a dot in its folder" grep -q '"key": "a.b/é"' pax.json
check "negative label" grep -q '"value": -5' ustar.json

# ---- integers stand in the index only if all of them are ----
py '
os.makedirs("mixed")
tar("mixed/0.tar", [("1.cls", b"7"), ("1.jpg", jpeg()), ("2.cls", b"007"), ("2.jpg", jpeg())])
'
"$FEEDLINE" index mixed --quiet
check "007 is no integer to keep" test "$(field mixed)" = "cls:bytes:2 jpg:bytes:2 2 0"

# ---- damaged archives name member and offset (F02, F03, F06, F07, F08) ----
py '
os.makedirs("scattered"); tar("scattered/0.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3")])
os.makedirs("twice"); tar("twice/0.tar", [("a.jpg", b"1"), ("a.jpg", b"2")])
os.makedirs("case"); tar("case/0.tar", [("a.jpg", b"1"), ("a.JPG", b"2")])
os.makedirs("cut"); tar("cut/0.tar", [("a.jpg", b"1" * 1000), ("b.jpg", b"2" * 1000)])
data = open("cut/0.tar", "rb").read(); open("cut/0.tar", "wb").write(data[:2000 + 600])
os.makedirs("noend"); tar("noend/0.tar", [("a.jpg", b"1"), ("b.jpg", b"2")])
data = open("noend/0.tar", "rb").read(); open("noend/0.tar", "wb").write(data[:2048])
os.makedirs("empty-tar"); open("empty-tar/0.tar", "wb").close()
os.makedirs("text"); open("text/0.tar", "w").write("no archive" * 100)
os.makedirs("gz"); tarfile.open("gz/0.tar.gz", "w:gz").close()
os.makedirs("hidden-gz"); os.rename("gz/0.tar.gz", "hidden-gz/0.tar"); tarfile.open("gz/0.tar.gz", "w:gz").close()
os.makedirs("nothing-in-it"); tar("nothing-in-it/0.tar", [("README", b"x")])
os.makedirs("same-key"); tar("same-key/0.tar", [("a.jpg", b"1")]); tar("same-key/1.tar", [("a.jpg", b"2")])
'
refuses 1 'scattered/0.tar: member "a.cls" at byte 2048: other members stand between it and the rest of its sample, which begins at byte 512' index scattered
refuses 1 'twice/0.tar: member "a.jpg" at byte 1024: its sample has a field "jpg" already, at byte 512' index twice
refuses 1 'case/0.tar: member "a.JPG" at byte 1024: its sample has a field "jpg" already' index case
refuses 1 'cut/0.tar: member "b.jpg" at byte 1536: the archive is cut: 1000 bytes of content begin at byte 2048, but the file ends at byte 2600' index cut
refuses 1 'empty-tar/0.tar: at byte 0: the archive is cut' index empty-tar
refuses 1 'text/0.tar: at byte 0: its checksum does not fit: it is no tar header' index text
refuses 1 'gz/0.tar.gz is compressed: unpack it first' index gz
refuses 1 'hidden-gz/0.tar is no tar archive but a gzip file' index hidden-gz
refuses 1 'nothing-in-it holds no samples: 1 entries were left out' index nothing-in-it
for d in scattered twice cut empty-tar text; do
    check "nothing is left of a failed index of $d" test "$(ls -A $d)" = 0.tar
done
"$FEEDLINE" index noend >out 2>err
check "an archive without end mark is read" test $? = 0
check "and warned of" grep -q "1 archives have no end mark" err
"$FEEDLINE" index same-key --quiet
check "one key in two archives" test "$(field same-key)" = "jpg:bytes:2 2 0"
if command -v tar >/dev/null && tar --version | grep -q GNU; then
    mkdir sparse
    truncate -s 1M hole.bin
    printf end >>hole.bin
    for f in gnu pax; do
        tar -S --format=$f -cf sparse/0.tar hole.bin
        refuses 1 'sparse/0.tar: member "hole.bin" at byte 0 is a sparse file' index sparse
    done
fi

# ---- what is left out (F10, F11), and the switch ----
py '
os.makedirs("side")
tar("side/0.tar", [("./", b"", dict(type=tarfile.DIRTYPE)), ("._a.jpg", b"fork"), ("a.jpg", jpeg()), ("l.jpg", b"", dict(type=tarfile.SYMTYPE, linkname="a.jpg")),
                   ("__MACOSX/a.jpg", b"fork"), (".DS_Store", b"x"), ("README", b"x")])
'
"$FEEDLINE" index side --quiet
check "sidecars are left out" test "$(field side)" = "jpg:bytes:1 1 6"
"$FEEDLINE" index side --quiet --keep-sidecars
check "sidecars as data" test "$(field side)" = "jpg:bytes:3 3 4"

# ---- picture sizes (F14) ----
py '
os.makedirs("sizes")
tar("sizes/0.tar", [("0.jpg", jpeg(640, 480)), ("1.jpg", jpeg(33, 44, 1, 6)), ("2.jpg", jpeg(9, 8, 4, None, True)),
                    ("3.jpg", jpeg(5, 6, 3, None, False, 500000)), ("4.jpg", b"\x89PNG\r\n\x1a\n" + b"x" * 40), ("5.jpg", b"")])
'
"$FEEDLINE" index sizes >out 2>err
check "strange pictures are told" grep -q "2 of 6 pictures have no JPEG header that can be understood, the first is 4.jpg" err
size() { "$FEEDLINE" inspect sizes --sample "$1" | sed -n 's/^  jpg .*tar//p'; }
check "size" test "$(size 0)" = ", 640 x 480, 3 components"
check "orientation" test "$(size 1)" = ", 33 x 44, 1 components, EXIF orientation 6"
check "four components" test "$(size 2)" = ", 9 x 8, 4 components"
check "header behind half a megabyte" test "$(size 3)" = ", 5 x 6, 3 components"
check "a PNG called jpg" test "$(size 4)" = ""

# ---- class folders (F12, F13) ----
py '
for c, n in (("b", 2), ("a", 1), ("a-b", 1)):
    for i in range(n):
        write(f"classes/{c}/{i}.JPEG", jpeg())
write("classes/b/deep/er/9.jpg", jpeg())
write("classes/.ipynb_checkpoints/0.jpg", jpeg())
write("classes/a/.DS_Store", b"x"); write("classes/a/notes.txt", b"x"); write("classes/a/._0.JPEG", b"x")
write("empty-class/a/0.jpg", jpeg()); os.makedirs("empty-class/b"); write("empty-class/c/0.jpg", jpeg())
write("loose/a/0.jpg", jpeg()); write("loose/1.jpg", jpeg())
write("flat/2.jpg", jpeg()); write("flat/10.jpg", jpeg()); write("flat/index.html", b"x")
os.makedirs("nothing"); write("no-pictures/a/x.txt", b"x")
write("looped/a/0.jpg", jpeg()); os.symlink("..", "looped/a/up"); os.symlink("a", "looped/b")
'
LC_ALL=C "$FEEDLINE" index classes >out 2>err
check "hidden folder is told" grep -q "classes/.ipynb_checkpoints is hidden" err
check "classes" test "$(field classes)" = "cls:int:5 jpg:bytes:5 5 4"
keys() { for i in $(seq 0 $(($2 - 1))); do "$FEEDLINE" inspect "$1" --sample "$i" 2>/dev/null | sed -n 's/^sample .*: //p; s/^  cls *\([0-9]* (.*)\)/\1/p' | paste -sd' '; done | paste -sd,; }
check "order and labels" test "$(keys classes 5)" = "a-b/0 1 (a-b),a/0 0 (a),b/0 2 (b),b/1 2 (b),b/deep/er/9 2 (b)"
refuses 1 'class folder empty-class/b holds no pictures' index empty-class
check "an empty class keeps its label" "$FEEDLINE" index empty-class --allow-empty --quiet
check "label behind the empty class" test "$(keys empty-class 2)" = "a/0 0 (a),c/0 2 (c)"
printf 'b\na\na-b\n' >list
"$FEEDLINE" index classes --classes list --output list.fli >/dev/null 2>&1
check "the caller's class list" test "$("$FEEDLINE" inspect classes --index list.fli --sample 0 | grep -c '^  cls .*2 (a-b)')" = 1
printf 'a\nx\n' >list
refuses 1 'has no folder for class "x" of the class list' index classes --classes list
refuses 1 'loose has both class folders and pictures outside of them (1.jpg): expected loose/CLASS/*.jpg' index loose
refuses 1 'nothing holds no dataset: expected tar archives (nothing/*.tar) or class folders with pictures (nothing/CLASS/*.jpg)' index nothing
refuses 1 'class folder no-pictures/a holds no pictures' index no-pictures
"$FEEDLINE" index flat --quiet
check "pictures without classes, in byte order" test "$(keys flat 2)" = "10,2"
"$FEEDLINE" index looped >out 2>err
check "a loop of links ends" grep -q "looped/a/up leads back to a folder above it" err
check "a linked class is a class" test "$(field looped 2>/dev/null)" = "cls:int:2 jpg:bytes:2 2 2"

# ---- one archive, read-only folders, bad arguments ----
cp gnu/0.tar one.tar
check "one archive" "$FEEDLINE" index one.tar --quiet
check "its index stands beside it" test -s one.tar.fli
check "inspect one archive" test "$(field one.tar)" = "cls:int:3 jpg:bytes:2 seg.png:bytes:1 3 0"
refuses 1 'cannot open dataset missing' index missing
refuses 2 'an argument is missing' index
refuses 2 'there is no option --fast' index gnu --fast
refuses 2 '--out needs --sample' inspect gnu --out x
refuses 1 'gnu has samples 0 to 2, there is no sample 3' inspect gnu --sample 3
refuses 1 'list.none cannot be read, or has no line in it' index classes --classes list.none
refuses 1 'cannot create nowhere/x.fli' index flat --output nowhere/x.fli
if [ "$(id -u)" != 0 ]; then
    rm -f pax/index.fli
    chmod a-w pax
    check "read-only folder" test "$(field pax)" = "cls:int:3 jpg:bytes:2 seg.png:bytes:1 3 0"
    chmod u+w pax
fi

# ---- golden output ----
"$FEEDLINE" inspect gnu --sample 0 >got
cat >want <<'TXT'
gnu
  kind         tar
  samples      3
  containers   1
  bytes        226 B
TXT
check "inspect begins as it always did" diff <(head -4 got) <(head -4 want)
check "fields as they always were" grep -qE '^  cls +int +3  in the index$' got
check "picture as it always was" grep -qE '^  jpg +[0-9]+ bytes at 512 of 0.tar, 48 x 32, 3 components$' got

# ---- entry points: what has none is counted ----
cp -r gnu entered
"$FEEDLINE" index entered --entry-points >got 2>/dev/null
check "the summary says for whom" grep -qE '^entered: entry points for 0 of 3 pictures, .* 2 of other coding, 0 damaged$' got
refuses 2 "does not go with it" index entered --entry-points --merge
check "inspect --json knows of them" grep -q '"entry_points": *0' <("$FEEDLINE" inspect entered --json)

# ---- the threads do not show ----
py '
os.makedirs("many")
for s in range(20):
    tar(f"many/{s:03}.tar", [(f"{s}/{i}.{e}", jpeg(s + 1, i + 1) if e == "jpg" else str(s * i).encode()) for i in range(30) for e in ("jpg", "cls")])
'
for n in 1 2 16; do "$FEEDLINE" index many --quiet --threads $n --output many-$n.fli; done
check "1 and 2 threads" cmp many-1.fli many-2.fli
check "1 and 16 threads" cmp many-1.fli many-16.fli
check "no temporary files stay" test -z "$(find . -name '*.tmp-*')"
finish
