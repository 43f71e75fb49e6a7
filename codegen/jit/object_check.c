/* object_check.c: whether a relocatable file that comes from the cache is well formed and defines
 * what it should. Formats: System V ABI, chapters 4 and 5; WebAssembly Core Specification 2.0,
 * section 5.5. Only the sections of a WebAssembly file are looked at, because its linker checks what
 * is in them, and whether a name is in it. */
#include "codegen/jit/object.h"

#include <elf.h>
#include <string.h>

enum { MAX_ALIGN = 4096 };

static const Elf64_Ehdr *head_of(const sn_object *o) {
    return (const Elf64_Ehdr *)o->data;
}

static const Elf64_Shdr *section_of(const sn_object *o, size_t k) {
    return (const Elf64_Shdr *)(o->data + head_of(o)->e_shoff) + k;
}

static bool check_head(const sn_object *o) {
    const Elf64_Ehdr *h = head_of(o);
    return o->size >= sizeof *h && !memcmp(o->data, ELFMAG, SELFMAG) &&
           h->e_ident[EI_CLASS] == ELFCLASS64 && h->e_ident[EI_DATA] == ELFDATA2LSB &&
           h->e_type == ET_REL && h->e_shentsize == sizeof(Elf64_Shdr) && h->e_shoff <= o->size &&
           h->e_shoff % _Alignof(Elf64_Shdr) == 0 &&
           h->e_shnum * sizeof(Elf64_Shdr) <= o->size - h->e_shoff && h->e_shstrndx < h->e_shnum;
}

/* A string table is not empty and ends with a zero byte. */
static bool is_strings(const sn_object *o, size_t k) {
    if (k >= head_of(o)->e_shnum) return false;
    const Elf64_Shdr *s = section_of(o, k);
    return s->sh_type == SHT_STRTAB && s->sh_size && !o->data[s->sh_offset + s->sh_size - 1];
}

static bool check_section(const sn_object *o, const Elf64_Shdr *s) {
    const Elf64_Shdr *names = section_of(o, head_of(o)->e_shstrndx);
    uint64_t align = s->sh_addralign;
    if (s->sh_type == SHT_NOBITS ? s->sh_size > o->size + (1 << 20)
                                 : s->sh_offset > o->size || s->sh_size > o->size - s->sh_offset)
        return false;
    return s->sh_name < names->sh_size && align <= MAX_ALIGN && (align & (align - 1)) == 0;
}

/* Whether a definition belongs to `name`: it is NAME, or NAME_… as the parts of an entry. */
static bool belongs(const char *symbol, const char *name) {
    size_t n = strlen(name);
    return !strncmp(symbol, name, n) && (!symbol[n] || symbol[n] == '_');
}

static bool check_symbols(const sn_object *o, const Elf64_Shdr *table, const char *name) {
    if (!is_strings(o, table->sh_link) || table->sh_offset % _Alignof(Elf64_Sym)) return false;
    const Elf64_Shdr *strings = section_of(o, table->sh_link);
    const Elf64_Sym *y = (const Elf64_Sym *)(o->data + table->sh_offset);
    bool found = !name;
    for (size_t i = 0; i < table->sh_size / sizeof *y; i++) {
        bool inside = y[i].st_shndx != SHN_UNDEF && y[i].st_shndx < head_of(o)->e_shnum;
        if (y[i].st_name >= strings->sh_size ||
            (!inside && y[i].st_shndx != SHN_UNDEF && y[i].st_shndx != SHN_ABS))
            return false;
        if (inside && y[i].st_value > section_of(o, y[i].st_shndx)->sh_size) return false;
        if (!name || !inside || ELF64_ST_BIND(y[i].st_info) == STB_LOCAL) continue;
        const char *symbol = (const char *)o->data + strings->sh_offset + y[i].st_name;
        if (!belongs(symbol, name)) return false;
        found |= !strcmp(symbol, name);
    }
    return found;
}

/* Relocations refer to a symbol of the table and to an offset inside their section. */
static bool check_relocations(const sn_object *o, const Elf64_Shdr *s, const Elf64_Shdr *table) {
    if (s->sh_info >= head_of(o)->e_shnum || s->sh_offset % _Alignof(Elf64_Rela) || !table)
        return false;
    const Elf64_Rela *r = (const Elf64_Rela *)(o->data + s->sh_offset);
    for (size_t k = 0; k < s->sh_size / sizeof *r; k++)
        if (ELF64_R_SYM(r[k].r_info) >= table->sh_size / sizeof(Elf64_Sym) ||
            r[k].r_offset >= section_of(o, s->sh_info)->sh_size)
            return false;
    return true;
}

/* ---- WebAssembly ---- */

static const char wasm_head[8] = "\0asm\1\0\0";

bool sn_wasm_next(const sn_object *o, sn_wasm_section *s) {
    size_t at = s->at ? s->at + s->size : sizeof wasm_head, size = 0;
    if (at >= o->size) return false;
    s->id = o->data[at++];
    for (int shift = 0;; shift += 7) { /* LEB128 of 32 bits */
        if (at == o->size || shift > 28) return false;
        size |= (size_t)(o->data[at] & 127) << shift;
        if (!(o->data[at++] & 128)) break;
    }
    s->at = at;
    s->size = size;
    return size <= o->size - at;
}

static bool check_wasm(const sn_object *o, const char *name) {
    sn_wasm_section s = {.at = 0};
    bool any = false;
    if (o->size <= sizeof wasm_head || memcmp(o->data, wasm_head, sizeof wasm_head)) return false;
    while (sn_wasm_next(o, &s)) any = true;
    return any && s.at + s.size == o->size &&
           (!name || memmem(o->data, o->size, name, strlen(name)));
}

bool sn_object_check(const sn_object *o, bool wasm, const char *name) {
    if (wasm) return check_wasm(o, name);
    if (!check_head(o)) return false;
    const Elf64_Shdr *table = NULL;
    size_t n = head_of(o)->e_shnum;
    for (size_t k = 0; k < n; k++) {
        const Elf64_Shdr *s = section_of(o, k);
        if (!check_section(o, s)) return false;
        if (s->sh_type != SHT_SYMTAB) continue;
        if (table) return false;
        table = s;
    }
    if (!is_strings(o, head_of(o)->e_shstrndx)) return false;
    if (table ? !check_symbols(o, table, name) : name != NULL) return false;
    for (size_t k = 0; k < n; k++) {
        const Elf64_Shdr *s = section_of(o, k);
        if (s->sh_type == SHT_RELA && !check_relocations(o, s, table)) return false;
    }
    return true;
}
