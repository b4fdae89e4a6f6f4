#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a machine can check of the house rules.

    lint.py includes        who includes what: includes.txt
    lint.py map [--fix]     lib/README.md has every room of includes.txt, and the same last column
    lint.py sizes           lines of files and functions
    lint.py words           words that mark unfinished work, tabs, SPDX lines
    lint.py docs            public functions have comments, settings.md has all settings, links lead somewhere
    lint.py symbols LIB ... exported names of the library, external names of the objects

Prints one line for each violation and ends with 1 if there was one, 0 otherwise.
"""
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE_DIRS = ("include", "lib", "decoders", "tools", "bench", "examples", "python", "tests", "scripts", "cmake")
MAX_FILE = 800
MAX_FUNCTION = 100
# Headers of C11 and POSIX, the kernel and the compiler that any private file may include.
SYSTEM = re.compile(
    r"^(assert|ctype|dirent|dlfcn|errno|fcntl|fenv|fnmatch|float|ftw|getopt|glob|inttypes|limits|locale|malloc|math|"
    r"poll|pthread|sched|semaphore|setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|"
    r"string|strings|termios|threads|time|unistd|utime|wchar|immintrin|cpuid|arm_neon|Python|"
    r"sys/\w+|linux/\w+|x86intrin|sanitizer/\w+)\.h$")


def files(*suffixes):
    found = []
    for top in SOURCE_DIRS:
        for folder, dirs, names in os.walk(os.path.join(ROOT, top)):
            dirs[:] = sorted(d for d in dirs if not d.startswith((".", "build", "venv", "__pycache__")))
            found += [os.path.relpath(os.path.join(folder, n), ROOT)
                      for n in sorted(names) if n.endswith(suffixes)]
    return found


def lines_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read().split("\n")


def read_table():
    rooms, external, current = [], [], None
    for number, line in enumerate(lines_of("tests/lint/includes.txt"), 1):
        line = line.split("#")[0].strip()
        if line == "external":
            current = external
        elif line:
            if ":" not in line:
                sys.exit(f"tests/lint/includes.txt:{number}: no colon in \"{line}\"")
            pattern, allowed = line.split(":", 1)
            (rooms if current is None else external).append((pattern.strip(), allowed.split()))
    return rooms, external


def resolve(path, name):
    for base in (os.path.dirname(path), "lib", "", "tests", "tests/lint"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(ROOT, candidate)):
            return candidate
    return None


def own_header(path, target):
    """lib/plan.c may include lib/plan.h; lib/plan_order.c belongs to the same room."""
    folder, name = os.path.split(path)
    stem = os.path.splitext(os.path.basename(target))[0]
    return os.path.dirname(target) == folder and re.split(r"[_.]", name)[0] == re.split(r"[_.]", stem)[0]


def allowed_private(path, target, allowed):
    for entry in allowed:
        if entry == "." and os.path.dirname(target) == os.path.dirname(path):
            return True
        if entry.endswith("/") and target.startswith(entry):
            return True
        if entry == target:
            return True
    return own_header(path, target)


def check_include(path, number, quoted, name, allowed, external):
    if not quoted:
        if name.startswith("feedline/"):
            ok = os.path.exists(os.path.join(ROOT, "include", name))
            return None if ok else f"{path}:{number}: there is no public header <{name}>"
        if SYSTEM.match(name):
            return None
        for pattern, places in external:
            if fnmatch.fnmatch(f"<{name}>", pattern):
                if any(fnmatch.fnmatch(path, p) for p in places):
                    return None
                return f"{path}:{number}: <{name}> may be included by {' '.join(places)} only"
        return f"{path}:{number}: <{name}> is in neither table of tests/lint/includes.txt"
    if name.startswith("feedline/"):
        return f"{path}:{number}: public headers are included as <{name}>"
    target = resolve(path, name)
    if target is None:
        return f"{path}:{number}: \"{name}\" is not found from here, lib/ or the root"
    if not allowed_private(path, target, allowed):
        return f"{path}:{number}: may not include \"{target}\" (tests/lint/includes.txt)"
    return None


def includes():
    rooms, external = read_table()
    bad = []
    for path in files(".c", ".h", ".cu", ".cuh", ".cpp"):
        room = next((a for p, a in rooms if fnmatch.fnmatch(path, p)), None)
        if room is None:
            bad.append(f"{path}: no line of tests/lint/includes.txt covers it")
            continue
        for number, line in enumerate(lines_of(path), 1):
            m = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
            if m:
                bad.append(check_include(path, number, bool(m.group(1)), m.group(1) or m.group(2), room, external))
    return [b for b in bad if b]


def map_cell(allowed):
    return " ".join(a.removeprefix("lib/") or "lib/" for a in allowed if a != "lib/base/")


def check_map():
    """Compares the rooms of lib/README.md with those of includes.txt; --fix writes the last column anew."""
    rooms = {p: map_cell(a) for p, a in read_table()[0] if p.startswith(("lib/", "decoders/"))}
    bad, seen, out = [], set(), []
    for number, line in enumerate(lines_of("lib/README.md"), 1):
        m = re.match(r"\| `((?:lib|decoders)/[^`]*)` \| ([^|]*) \|([^|]*)\|$", line)
        if m:
            room, cell = m.group(1), m.group(3).strip()
            seen.add(room)
            if room not in rooms:
                bad.append(f"lib/README.md:{number}: {room} is not in tests/lint/includes.txt")
            elif cell != rooms[room]:
                if "--fix" not in sys.argv:
                    bad.append(f"lib/README.md:{number}: {room} may include \"{rooms[room]}\" (lint.py map --fix)")
                line = f"| `{room}` | {m.group(2)} | {rooms[room]} |"
        out.append(line)
    if "--fix" in sys.argv:
        with open(os.path.join(ROOT, "lib/README.md"), "w", encoding="utf-8") as f:
            f.write("\n".join(out))
    return bad + [f"lib/README.md: {room} is missing" for room in rooms if room not in seen]


def sizes():
    bad = []
    for path in files(".c", ".h", ".cu", ".cuh", ".py", ".sh"):
        lines = lines_of(path)
        if len(lines) - 1 > MAX_FILE:
            bad.append(f"{path}: {len(lines) - 1} lines, {MAX_FILE} are allowed")
        start = None
        if not path.endswith((".c", ".cu", ".h", ".cuh")):
            continue
        for number, line in enumerate(lines, 1):
            if line == "{":  # the house style puts the brace of a function, and of nothing else, here
                start = number
            elif line.startswith("}") and start:
                if number - start - 1 > MAX_FUNCTION:
                    bad.append(f"{path}:{start}: function of {number - start - 1} lines, {MAX_FUNCTION} are allowed")
                start = None
    return bad


def words():
    unfinished = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "not imple" + "mented")) + r")\b")
    bad = []
    for path in files(".c", ".h", ".cu", ".cuh", ".py", ".pyi", ".sh", ".cmake", ".txt", ".map"):
        lines = lines_of(path)
        for number, line in enumerate(lines, 1):
            m = unfinished.search(line)
            if m:
                bad.append(f"{path}:{number}: the word {m.group(1)}")
            if "\t" in line or line != line.rstrip():
                bad.append(f"{path}:{number}: a tab, or a space at the line's end")
        if path.endswith((".c", ".h", ".cu", ".cuh")) and "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
            bad.append(f"{path}:1: no SPDX line")
    return bad


def docs():
    return undocumented_functions() + missing_settings() + broken_links()


def undocumented_functions():
    bad = []
    for path in files(".h"):
        above = ""
        for number, line in enumerate(lines_of(path), 1):
            if path.startswith("include/") and line.startswith("FL_API") and not above.endswith(("*/", ";")):
                bad.append(f"{path}:{number}: a public function without a comment above it")
            above = line.rstrip()
    return bad


def members(header, struct):
    text = "\n".join(lines_of(header))
    body = text[text.index(f"typedef struct {struct} {{"):text.index(f"}} {struct};")]
    body = re.sub(r"/\*.*?\*/|//.*", "", body)
    found = []
    for declaration in body.split("{", 1)[1].split(";"):
        found += re.findall(r"(\w+)(?:\[[^\]]*\])*\s*(?:,|$)", declaration.strip())
    return found


def missing_settings():
    settings = "\n".join(lines_of("docs/settings.md"))
    plain = {"struct_size", "log", "log_cookie", "progress", "progress_cookie", "n_columns", "columns"}
    return [f"docs/settings.md: `{name}` of {struct} is missing"
            for header, struct in (("include/feedline/config.h", "FlConfig"), ("include/feedline/config.h", "FlImage"),
                                   ("include/feedline/dataset.h", "FlDatasetOptions"))
            for name in members(header, struct) if name not in plain and f"`{name}`" not in settings]


def broken_links():
    bad = []
    pages = ["README.md", "CHANGELOG.md"] + [os.path.join(d, n) for d in ("docs", "lib", "bench", "bench/peers", "python")
                                             for n in sorted(os.listdir(os.path.join(ROOT, d))
                                                             if os.path.isdir(os.path.join(ROOT, d)) else [])
                                             if n.endswith(".md")]
    for page in pages:
        for number, line in enumerate(lines_of(page), 1):
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                if not target.startswith(("http:", "https:")) and not os.path.exists(
                        os.path.join(ROOT, os.path.dirname(page), target)):
                    bad.append(f"{page}:{number}: the link to {target} leads nowhere")
    return bad


def nm(args, path):
    out = subprocess.run(["nm", "-P", *args, path], check=True, capture_output=True, text=True).stdout
    return [line.split()[:2] for line in out.splitlines() if len(line.split()) >= 2]


def symbols(paths):
    """The first path is the shared library, the others are object files."""
    library = os.path.basename(paths[0])
    declared = set()
    for path in files(".h"):
        if path.startswith("include/"):
            declared |= set(re.findall(r"\b(fl_\w+)\(", " ".join(lines_of(path))))
    exported = {name.split("@")[0] for name, kind in nm(["-D", "--defined-only"], paths[0]) if kind not in "Aa"}
    bad = [f"{library}: exports {name}, which no public header declares" for name in sorted(exported - declared)]
    for path in paths[1:]:
        for name, _ in nm(["--defined-only", "--extern-only"], path):
            if not name.startswith(("fl_", "_Z", "__")):  # C++ and compiler-made names never leave the library
                bad.append(f"{os.path.basename(path)}: external name {name} does not begin with fl_")
    return bad


def main():
    commands = {"includes": includes, "map": check_map, "sizes": sizes, "words": words, "docs": docs}
    if sys.argv[1:2] and sys.argv[1] in commands and sys.argv[2:] in ([], ["--fix"]):
        bad = commands[sys.argv[1]]()
    elif len(sys.argv) > 2 and sys.argv[1] == "symbols":
        bad = symbols(sys.argv[2:])
    else:
        print(__doc__, file=sys.stderr)
        return 2
    for line in bad:
        print(line)
    print(f"{sys.argv[1]}: {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
