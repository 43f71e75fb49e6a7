#!/usr/bin/python3
# make_chat.py: renders the templates chat/NAME.jinja with Debian's python3-jinja2, configured as transformers does,
# for three chats each: NAME.txt. A template's own error is the line "ERROR: message".
import glob
import os

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat")
MARK = "\n__chat__\n"
CHATS = [
    ([("user", "Hello there")], True),
    ([("system", " Be brief. "), ("user", "What is 2+2?"), ("assistant", " 4 "), ("user", "caf\u00e9?\n")], True),
    ([("user", "a"), ("assistant", "<think>hm</think>b"), ("user", "c"), ("assistant", "d")], False),
]


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def render(text, messages, add):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda x, **k: __import__("json").dumps(x, ensure_ascii=False)
    env.globals["raise_exception"] = refuse
    try:
        return env.from_string(text).render(messages=[dict(role=r, content=c) for r, c in messages], tools=None, documents=None,
                                            add_generation_prompt=add, bos_token="<s>", eos_token="</s>")
    except jinja2.exceptions.TemplateError as e:
        return "ERROR: " + str(e)


for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
    template = open(path).read()
    with open(path[:-5] + "txt", "w") as f:
        f.write("".join(render(template, m, add) + MARK for m, add in CHATS))
