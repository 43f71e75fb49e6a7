/* object_check.c: whether a relocatable file that comes from the cache is well formed and defines
 * what it should. Formats: System V ABI, chapters 4 and 5; LLVM's bitcode: only its first bytes
 * are looked at, and whether a name is in it. */
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

static bool check_bitcode(const sn_object *o, const char *name) {
    static const char magic[] = "BC\xc0\xde";
    return o->size > 4 && !memcmp(o->data, magic, 4) &&
           (!name || memmem(o->data, o->size, name, strlen(name)));
}

bool sn_object_check(const sn_object *o, bool elf, const char *name) {
    if (!elf) return check_bitcode(o, name);
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
