"""json_keys.py DIR: compares what commands print with --json with their help. DIR/COMMAND.help is a help text; every line
but the first of DIR/COMMAND.ANYTHING is a JSON object with exactly the keys, of the types, that the section "json:" lists
("key?": may be absent; "a[].b": of the elements of a list). DIR/any.ANYTHING: JSON objects, with any keys."""
import json
import pathlib
import sys

TYPES = {"text": str, "integer": int, "number": (int, float, type(None)), "boolean": bool, "list": list, "object": dict}


def read_keys(path):
    keys, on = {}, False
    for line in open(path, encoding="utf-8"):
        if line.startswith("json:"):
            on = True
        elif on and line.startswith("  "):
            name, kind = line.split()[:2]
            keys.setdefault(name, []).append(kind)
    return keys


def fits(value, kind):
    return any(isinstance(value, TYPES[k]) and (k == "boolean" or not isinstance(value, bool))
               for k in kind.rstrip("?").split("|"))


def check(value, prefix, keys, where):
    for key, item in value.items():
        name = prefix + key
        if name not in keys:
            raise SystemExit(f"{where}: key {name} is not documented")
        if not any(fits(item, kind) for kind in keys[name]):
            raise SystemExit(f"{where}: {name} is {item!r}, documented as {keys[name]}")
        for element in item if isinstance(item, list) else []:
            if isinstance(element, dict):
                check(element, name + "[].", keys, where)
    for name, kinds in keys.items():
        direct = name.startswith(prefix) and not {".", "["} & set(name[len(prefix):])
        if direct and not all(k.endswith("?") for k in kinds) and name[len(prefix):] not in value:
            raise SystemExit(f"{where}: {name} is missing")


def constant(word):
    raise SystemExit(f"{word} is not JSON")


for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if path.suffix == ".help":
        continue
    command = path.name.split(".")[0]
    keys = read_keys(path.with_name(command + ".help")) if command != "any" else None
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    if keys == {} or not lines:
        raise SystemExit(f"{first}: no documented keys, or no output")
    for number, line in enumerate(lines, 1):
        value = json.loads(line, parse_constant=constant)
        if keys is not None:
            check(value, "", keys, f"{first}: line {number}")
