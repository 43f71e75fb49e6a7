#!/usr/bin/env python3
"""rooms.py SOURCE_DIR: the folders of the product depend on each other in one direction.

A file depends on those whose headers it includes, and on those that define functions and data that it names (and that
a header declares). A header counts as part of the .c file of its name, also if that is in a folder below
(runtime/weights.h, runtime/files/weights.c). The rows of tests/house.txt:

    folder NAME FOLDERS     the folders that files of this top folder may depend on
    room NAME ROOMS         the same for a room, within its top folder
    circle ROOM N REASON    the largest circle of files within the room: bounds only go down

rooms.py --self-check plants a violation of each kind."""
import os
import re
import sys
import tempfile

COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^#include "([a-z0-9_/]+\.h)"', re.M)
FUNCTION = re.compile(r'^(?!static\b|typedef\b|extern\b|#|\})[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)\s*\{', re.M)
DATA = re.compile(r'^(?!static\b|typedef\b|extern\b|#|\})[A-Za-z_][\w *]*?\b(\w+)(?:\[[^\]]*\])* = ', re.M)
LOCAL = re.compile(r'^static\b[^;={}]*?\b(\w+)(?:\(|\[| =|;)', re.M)


def read_rows(path):
    rows = {'folder': {}, 'room': {}, 'circle': {}}
    for line in open(path):
        word = line.split()
        if word and word[0] in rows:
            rows[word[0]][word[1]] = word[2:]
    return rows


def find_files(root, tops):
    return sorted(os.path.relpath(os.path.join(d, f), root) for top in tops
                  for d, _, files in os.walk(os.path.join(root, top)) for f in files if f.endswith(('.c', '.h')))


def rooms_of(files):
    """{file: its room}: a header is in the room of its .c file."""
    room = {f: os.path.dirname(f) for f in files}
    for f in files:
        name = os.path.basename(f)[:-2] + '.c'
        below = [c for c in files if os.path.basename(c) == name and c.startswith(room[f] + '/')]
        if f.endswith('.h') and f[:-2] + '.c' not in room and len(below) == 1:
            room[f] = os.path.dirname(below[0])
    return room


def graph_of(root, files):
    """{file: {file it depends on: why}}: .c files by what they use, all files by what they include."""
    text = {f: open(os.path.join(root, f)).read() for f in files}
    plain = {f: COMMENT.sub(' ', text[f]) for f in files}
    declared = {name for f in files if f.endswith('.h') for name in re.findall(r'\w+', plain[f])}
    defined = {}
    for f in files:
        for name in FUNCTION.findall(plain[f]) + DATA.findall(plain[f]) if f.endswith('.c') else []:
            if name in declared:
                defined.setdefault(name, []).append(f)
    graph = {f: {} for f in files}
    for f in files:
        for header in INCLUDE.findall(text[f]):
            if header in graph:
                graph[f].setdefault(header, f'{f} includes {header}')
        local = set(LOCAL.findall(plain[f]))
        for name in sorted(set(re.findall(r'[A-Za-z_]\w*', plain[f])) - local) if f.endswith('.c') else []:
            if len(defined.get(name, [])) == 1 and defined[name] != [f]:
                graph[f].setdefault(defined[name][0], f'{f} uses {name} of {defined[name][0]}')
    return graph


def circles_of(graph):
    """Strongly connected components of more than one node (Tarjan 1972)."""
    index, low, stack, out = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = stack[stack.index(v):]
            del stack[stack.index(v):]
            if len(part) > 1:
                out.append(sorted(part))

    for v in graph:
        if v not in index:
            visit(v)
    return out


def check(root):
    rows = read_rows(os.path.join(root, 'tests/house.txt'))
    rooms, wrong, largest = rows['room'], [], {}
    files = find_files(root, rows['folder'])
    graph, room = graph_of(root, files), rooms_of(files)
    for name in sorted(set(room.values()) - set(rooms)):
        wrong.append(f'{name}: the room has no row in tests/house.txt')
    for f in files:
        for to, why in graph[f].items():
            here, there = room[f], room[to]
            top, other = here.split('/')[0], there.split('/')[0]
            if top != other and other not in rows['folder'][top]:
                wrong.append(f'{why}: {top}/ must not depend on {other}/ (see the folders in tests/house.txt)')
            if top == other and here != there and here in rooms and there not in rooms[here]:
                wrong.append(f'{why}: {here}/ must not depend on {there}/ (see the rooms in tests/house.txt)')
    for kind in ('folder', 'room'):
        for part in circles_of({r: [to for to in rows[kind][r] if to in rows[kind]] for r in rows[kind]}):
            wrong.append(f'tests/house.txt: each {kind} may depend on the next: {", ".join(part)}')
    for part in circles_of(graph):
        name = room[part[0]]
        largest[name] = max(largest.get(name, 0), len(part))
        if len(part) > int((rows['circle'].get(name) or [0])[0]):
            wrong.append(f'{name}: a circle of {len(part)} files: {", ".join(part)}')
    for name, row in rows['circle'].items():
        if largest.get(name, 0) < int(row[0]):
            wrong.append(f'tests/house.txt: the bound of "circle {name}" can go down to {largest.get(name, 0)}')
    return wrong


def plant(root, files):
    rows = 'folder a\nfolder b a\nroom a\nroom a/x a\nroom b\ncircle a 2 known\n'
    tree = {'tests/house.txt': rows, 'a/all.h': 'int low(void), up(void), one(void), two(void), three(void), b(void);\n',
            'a/low.h': 'int low(void);\n', 'a/low.c': '#include "a/low.h"\nint low(void) {\n}\n',
            'a/one.c': 'int one(void) {\n    two();\n}\n', 'a/two.c': 'int two(void) {\n    one();\n}\n',
            'a/x/up.c': '#include "a/low.h"\nint up(void) {\n    low();\n}\n', 'b/b.c': 'int b(void) {\n    low();\n}\n'}
    tree.update(files)
    for path, text in tree.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), 'w') as f:
            f.write(text)
    return rows


def self_check():
    with tempfile.TemporaryDirectory() as root:
        rows = plant(root, {})
    calls = 'int %s(void) {\n    %s();\n}\n'
    cases = [
        ({}, None),
        ({'a/low.c': '/* up() */\nstatic int up(void);\n' + calls % ('low', 'up')}, None),
        ({'a/low.c': calls % ('low', 'up')}, 'a/low.c uses up of a/x/up.c: a/ must not depend on a/x/'),
        ({'a/low.h': '#include "a/x/up.h"\n', 'a/x/up.h': ''}, 'a/low.h includes a/x/up.h: a/ must not depend'),
        ({'a/up.h': '', 'a/low.h': '#include "a/up.h"\n'}, 'a/low.h includes a/up.h: a/ must not depend on a/x/'),
        ({'a/low.c': calls % ('low', 'b')}, 'a/low.c uses b of b/b.c: a/ must not depend on b/'),
        ({'a/three.c': calls % ('three', 'one'), 'a/two.c': calls % ('two', 'three')},
         'a: a circle of 3 files: a/one.c, a/three.c, a/two.c'),
        ({'a/two.c': 'int two(void) {\n}\n'}, 'the bound of "circle a" can go down to 0'),
        ({'a/y/y.c': 'int y;\n'}, 'a/y: the room has no row'),
        ({'tests/house.txt': rows.replace('room a\n', 'room a a/x\n')}, 'each room may depend on the next: a, a/x'),
        ({'tests/house.txt': rows.replace('folder a\n', 'folder a b\n')}, 'each folder may depend on the next: a, b'),
    ]
    failed = False
    for files, want in cases:
        with tempfile.TemporaryDirectory() as root:
            plant(root, files)
            wrong = check(root)
        if len(wrong) != bool(want) or (want and want not in wrong[0]):
            print(f'FAILED: wanted {want}, got', *wrong, sep='\n    ')
            failed = True
    if not failed:
        print('each kind of violation is caught')
    return failed


if __name__ == '__main__':
    sys.setrecursionlimit(10000)
    if sys.argv[1] == '--self-check':
        sys.exit(self_check())
    faults = check(sys.argv[1])
    print(*faults or ['the rooms depend on each other in one direction'], sep='\n')
    sys.exit(bool(faults))
