# cmake -DROOT=DIR -DFILES=A,B -DOUT=FILE.c -P embed.cmake: writes a C file with the contents of ROOT/A, ROOT/B
# and the function embedded_text (embedded.h).
string(REPLACE "," ";" files "${FILES}")
set(text "/* Made by embed.cmake. */\n#include \"tools/embed/embedded.h\"\n\n#include <string.h>\n\n")
set(table "")
set(n 0)
foreach(file ${files})
  file(READ ${ROOT}/${file} hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n    " hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND text "static const unsigned char file_${n}[] = {\n    ${hex}0};\n")
  string(APPEND table "    {\"${file}\", file_${n}},\n")
  math(EXPR n "${n} + 1")
endforeach()
string(APPEND text "\nstatic const struct {\n    const char *name;\n    const unsigned char *text;\n} files[] = {\n${table}};\n\n"
  "const char *embedded_text(const char *name) {\n"
  "    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)\n"
  "        if (!strcmp(files[i].name, name)) return (const char *)files[i].text;\n"
  "    return NULL;\n}\n")
file(WRITE ${OUT} "${text}")
