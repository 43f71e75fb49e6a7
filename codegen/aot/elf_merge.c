/* elf_merge.c: merges ELF objects: gives the sections of each the name of what it defines, so that
 * linkers drop what is not used, concatenates sections of the same name and kind (.eh_frame), and adjusts
 * symbols and relocations. Format: System V ABI, chapters 4 and 5; RELA relocations only. */
#include "codegen/aot/elf_merge.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SECTION_NAME = 256 };

typedef struct part { /* a contiguous part of an output section */
    const void *data; /* NULL: zeros */
    size_t at, size;
    void *own; /* to be freed; NULL: the caller's */
} part;

typedef struct section {
    char name[SECTION_NAME];
    uint32_t type;
    uint64_t flags, align, size;
    part *part;
    size_t n_part, cap_part;
    Elf64_Rela *rela; /* r_info's symbol: index + 1 into e->symbol */
    size_t n_rela, cap_rela;
    size_t symbol; /* its section symbol in the output; 0: none */
} section;

typedef struct symbol {
    char *name;
    int group;
    const char *prefix; /* NULL: visible */
    Elf64_Sym sym;      /* st_shndx: index + 1 into e->section, 0: undefined, or SHN_ABS */
    size_t out;         /* index in the output's table; 0: not there */
    struct symbol *defined_by;
    bool needed;
} symbol;

struct sn_elf {
    section *section;
    size_t n_section, cap_section;
    symbol **symbol;
    size_t n_symbol, cap_symbol;
    uint16_t machine;
    uint32_t flags; /* e_flags: RISC-V's calling convention */
    bool any;
    size_t code[64]; /* bytes, by group */
};

static bool out_of_memory(sn_error *err) {
    return sn_fail(err, SN_ERR_MEMORY, "out of memory for an object file");
}

/* Grows a list by one element. */
static bool extend(void *array, size_t n, size_t *cap, size_t size) {
    void **p = array;
    if (n < *cap) return true;
    size_t more = *cap ? 2 * *cap : 16;
    void *grown = realloc(*p, more * size);
    if (!grown) return false;
    *p = grown;
    *cap = more;
    return true;
}

sn_elf *sn_elf_new(void) {
    return calloc(1, sizeof(sn_elf));
}

void sn_elf_free(sn_elf *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_section; i++) {
        for (size_t k = 0; k < e->section[i].n_part; k++) free(e->section[i].part[k].own);
        free(e->section[i].part);
        free(e->section[i].rela);
    }
    for (size_t i = 0; i < e->n_symbol; i++) {
        free(e->symbol[i]->name);
        free(e->symbol[i]);
    }
    free(e->section);
    free(e->symbol);
    free(e);
}

size_t sn_elf_code_bytes(const sn_elf *e, int group) {
    return e->code[group];
}

/* ---- reading ---- */

typedef struct input {
    const uint8_t *data;
    size_t size;
    const Elf64_Ehdr *h;
    const Elf64_Shdr *s;
    const char *names;
    size_t *to, *base; /* [e_shnum] output section + 1 and offset in it; 0: dropped */
    size_t *symbol;    /* [n] index + 1 into e->symbol */
    const Elf64_Sym *sym;
    size_t n_sym;
    const char *strings;
} input;

static bool open_input(input *in, const sn_object *o, sn_error *err) {
    *in = (input){.data = o->data, .size = o->size, .h = (const Elf64_Ehdr *)o->data};
    if (!sn_object_check(o, true, NULL))
        return sn_fail(err, SN_ERR_INTERNAL,
                       "a kernel's object is not a 64-bit ELF file, or corrupted");
    in->s = (const Elf64_Shdr *)(o->data + in->h->e_shoff);
    in->names = (const char *)o->data + in->s[in->h->e_shstrndx].sh_offset;
    for (int i = 0; i < in->h->e_shnum; i++)
        if (in->s[i].sh_type == SHT_SYMTAB) {
            in->sym = (const Elf64_Sym *)(o->data + in->s[i].sh_offset);
            in->n_sym = in->s[i].sh_size / sizeof *in->sym;
            in->strings = (const char *)o->data + in->s[in->s[i].sh_link].sh_offset;
        }
    in->to = calloc((size_t)in->h->e_shnum + 1, sizeof *in->to);
    in->base = calloc((size_t)in->h->e_shnum + 1, sizeof *in->base);
    in->symbol = calloc(in->n_sym + 1, sizeof *in->symbol);
    return (in->to && in->base && in->symbol) || out_of_memory(err);
}

static bool is_kept(const input *in, const Elf64_Shdr *s) {
    const bool unwind = s->sh_type == SHT_X86_64_UNWIND && in->h->e_machine == EM_X86_64;
    return s->sh_type == SHT_PROGBITS || s->sh_type == SHT_NOBITS || unwind
               ? s->sh_flags & SHF_ALLOC && s->sh_size
               : s->sh_type == SHT_RISCV_ATTRIBUTES;
}

/* "PREFIXrest" for "sn_rest". */
static void prefixed(const char *prefix, const char *name, char *out, size_t size) {
    snprintf(out, size, "%s%s", prefix, strncmp(name, "sn_", 3) ? name : name + 3);
}

/* ".text.NAME" and ".rodata.NAME" for NAME, of the names NAME and NAME_… that an object defines. With
 * prefix NULL functions and files have sections already. Constants of all sizes are put together: merging equal
 * ones would gain little. */
static void output_name(const input *in, const char *prefix, const char *name,
                        char out[SECTION_NAME]) {
    const bool merges = !strncmp(name, ".rodata.cst", 11) || !strncmp(name, ".rodata.str", 11);
    const char *kind = !strncmp(name, ".rodata", 7) && (prefix || merges) ? ".rodata"
                       : !strcmp(name, ".text")                           ? ".text"
                                                                          : NULL;
    const char *shortest = NULL;
    snprintf(out, SECTION_NAME, "%s", prefix || !kind ? name : kind);
    for (size_t i = 1; kind && prefix && i < in->n_sym; i++) {
        const Elf64_Sym *y = &in->sym[i];
        const char *symbol = in->strings + y->st_name;
        bool defined = ELF64_ST_BIND(y->st_info) == STB_GLOBAL && y->st_shndx != SHN_UNDEF;
        if (defined && (!shortest || strlen(symbol) < strlen(shortest))) shortest = symbol;
    }
    if (!shortest) return;
    char full[200];
    prefixed(prefix, shortest, full, sizeof full);
    snprintf(out, SECTION_NAME, "%s.%s", kind, full);
}

static section *find_section(sn_elf *e, const char *name, const Elf64_Shdr *s) {
    uint64_t flags = s->sh_flags & (SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR);
    for (size_t i = 0; i < e->n_section; i++) {
        section *o = &e->section[i];
        if (!strcmp(o->name, name) && o->type == s->sh_type && o->flags == flags) return o;
    }
    if (!extend(&e->section, e->n_section, &e->cap_section, sizeof *e->section)) return NULL;
    section *o = &e->section[e->n_section++];
    *o = (section){.type = s->sh_type, .flags = flags, .align = 1};
    snprintf(o->name, sizeof o->name, "%s", name);
    return o;
}

static bool append(section *s, const void *data, size_t size, size_t align, void *own,
                   sn_error *err) {
    if (!extend(&s->part, s->n_part, &s->cap_part, sizeof *s->part)) return out_of_memory(err);
    if (align > s->align) s->align = align;
    s->size = align > 1 ? (s->size + align - 1) / align * align : s->size;
    s->part[s->n_part++] = (part){data, s->size, size, own};
    s->size += size;
    return true;
}

static bool take_sections(sn_elf *e, input *in, int group, const char *prefix, sn_error *err) {
    char name[SECTION_NAME];
    for (int i = 0; i < in->h->e_shnum; i++) {
        const Elf64_Shdr *s = &in->s[i];
        if (!is_kept(in, s)) continue;
        output_name(in, prefix, in->names + s->sh_name, name);
        section *o = find_section(e, name, s);
        if (!o) return out_of_memory(err);
        if (s->sh_type == SHT_RISCV_ATTRIBUTES && o->n_part) continue; /* equal in all objects */
        void *copy = s->sh_type == SHT_NOBITS ? NULL : malloc(s->sh_size + 1);
        if (s->sh_type != SHT_NOBITS && !copy) return out_of_memory(err);
        if (copy) memcpy(copy, in->data + s->sh_offset, s->sh_size);
        if (!append(o, copy, s->sh_size, s->sh_addralign, copy, err)) {
            free(copy);
            return false;
        }
        in->to[i] = (size_t)(o - e->section) + 1;
        in->base[i] = o->part[o->n_part - 1].at;
        if (s->sh_flags & SHF_EXECINSTR) e->code[group] += s->sh_size;
    }
    return true;
}

static symbol *add_symbol(sn_elf *e, const char *name, int group) {
    if (!extend(&e->symbol, e->n_symbol, &e->cap_symbol, sizeof *e->symbol)) return NULL;
    symbol *y = calloc(1, sizeof *y);
    if (y) y->name = strdup(name);
    if (!y || !y->name) {
        free(y);
        return NULL;
    }
    y->group = group;
    e->symbol[e->n_symbol++] = y;
    return y;
}

static bool take_symbols(sn_elf *e, input *in, int group, const char *prefix, sn_error *err) {
    for (size_t i = 1; i < in->n_sym; i++) {
        const Elf64_Sym *s = &in->sym[i];
        int type = ELF64_ST_TYPE(s->st_info);
        bool inside = s->st_shndx != SHN_UNDEF && s->st_shndx < in->h->e_shnum;
        if (type == STT_FILE || type == STT_SECTION || (inside && !in->to[s->st_shndx])) continue;
        symbol *y = add_symbol(e, in->strings + s->st_name, group);
        if (!y) return out_of_memory(err);
        y->sym = *s;
        y->prefix = prefix;
        if (inside) {
            y->sym.st_shndx = (uint16_t)in->to[s->st_shndx];
            y->sym.st_value += in->base[s->st_shndx];
        }
        in->symbol[i] = e->n_symbol;
    }
    return true;
}

/* Section symbols, to which relocations may refer: one for each output section. */
static size_t section_symbol(sn_elf *e, size_t section) {
    if (!e->section[section].symbol) {
        symbol *y = add_symbol(e, "", -1);
        if (!y) return 0;
        y->sym = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION),
                             .st_shndx = (uint16_t)(section + 1)};
        e->section[section].symbol = e->n_symbol;
    }
    return e->section[section].symbol;
}

static bool take_relocations(sn_elf *e, input *in, sn_error *err) {
    for (int i = 0; i < in->h->e_shnum; i++) {
        const Elf64_Shdr *s = &in->s[i];
        if (s->sh_type == SHT_REL)
            return sn_fail(err, SN_ERR_INTERNAL, "an object has REL relocations");
        if (s->sh_type != SHT_RELA || s->sh_info >= in->h->e_shnum || !in->to[s->sh_info]) continue;
        const Elf64_Rela *r = (const Elf64_Rela *)(in->data + s->sh_offset);
        for (size_t k = 0; k < s->sh_size / sizeof *r; k++) {
            Elf64_Rela out = r[k];
            size_t at = ELF64_R_SYM(r[k].r_info), y = in->symbol[at];
            out.r_offset += in->base[s->sh_info];
            if (ELF64_ST_TYPE(in->sym[at].st_info) == STT_SECTION) {
                size_t of = in->sym[at].st_shndx, to = of < in->h->e_shnum ? in->to[of] : 0;
                if (!to) return sn_fail(err, SN_ERR_INTERNAL, "a relocation to a dropped section");
                y = section_symbol(e, to - 1);
                if (!y) return out_of_memory(err);
                out.r_addend += (int64_t)in->base[in->sym[at].st_shndx];
            }
            out.r_info = ELF64_R_INFO((uint64_t)y, ELF64_R_TYPE(r[k].r_info));
            section *o = &e->section[in->to[s->sh_info] - 1];
            if (!extend(&o->rela, o->n_rela, &o->cap_rela, sizeof *o->rela))
                return out_of_memory(err);
            o->rela[o->n_rela++] = out;
        }
    }
    return true;
}

bool sn_elf_add(sn_elf *e, int group, const char *prefix, const sn_object *o, sn_error *err) {
    input in;
    bool ok = open_input(&in, o, err);
    if (ok && e->any && in.h->e_machine != e->machine)
        ok = sn_fail(err, SN_ERR_INTERNAL, "objects of different machines");
    if (ok) {
        e->machine = in.h->e_machine;
        e->flags = in.h->e_flags;
        e->any = true;
        ok = take_sections(e, &in, group, prefix, err) &&
             take_symbols(e, &in, group, prefix, err) && take_relocations(e, &in, err);
    }
    free(in.to);
    free(in.base);
    free(in.symbol);
    return ok;
}

bool sn_elf_add_data(sn_elf *e, const char *name, const void *data, size_t bytes, size_t align,
                     sn_error *err) {
    Elf64_Shdr s = {.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC};
    char text[SECTION_NAME];
    snprintf(text, sizeof text, ".rodata.%s", name);
    section *o = find_section(e, text, &s);
    symbol *y = o ? add_symbol(e, name, -1) : NULL;
    if (!y) return out_of_memory(err);
    if (!append(o, data, bytes, align, NULL, err)) return false;
    y->prefix = "";
    y->sym = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                         .st_shndx = (uint16_t)(o - e->section + 1),
                         .st_value = o->part[o->n_part - 1].at,
                         .st_size = bytes};
    return true;
}

/* ---- resolving ---- */

static bool is_definition(const symbol *y) {
    return ELF64_ST_BIND(y->sym.st_info) != STB_LOCAL && y->sym.st_shndx != SHN_UNDEF;
}

static void final_name(const symbol *y, char *out, size_t size) {
    bool renamed = y->prefix && *y->prefix && is_definition(y);
    if (renamed)
        prefixed(y->prefix, y->name, out, size);
    else
        snprintf(out, size, "%s", y->name);
}

typedef struct index { /* of definitions by (group, name), and by final name as group -2 */
    struct slot {
        uint64_t hash;
        symbol *y;
    } * slot;
    size_t mask;
} index_table;

static uint64_t hash_name(int group, const char *name) {
    return XXH3_64bits_withSeed(name, strlen(name), (uint64_t)(int64_t)group);
}

/* The slot of a name: its definition, or where it would be inserted. */
static struct slot *find_slot(index_table *t, uint64_t h) {
    size_t i = h & t->mask;
    while (t->slot[i].y && t->slot[i].hash != h) i = (i + 1) & t->mask;
    return &t->slot[i];
}

static bool insert(index_table *t, uint64_t h, symbol *y, sn_error *err) {
    struct slot *s = find_slot(t, h);
    if (s->y && s->y != y)
        return sn_fail(err, SN_ERR_INTERNAL, "'%s' is defined twice in an artefact", y->name);
    *s = (struct slot){h, y};
    return true;
}

enum { ANY_GROUP = -2 };

static bool resolve(sn_elf *e, sn_error *err) {
    index_table t = {.mask = 1};
    while (t.mask < 4 * e->n_symbol + 4) t.mask *= 2;
    t.slot = calloc(t.mask, sizeof *t.slot);
    if (!t.slot) return out_of_memory(err);
    t.mask--;
    bool ok = true;
    char name[256];
    for (size_t i = 0; ok && i < e->n_symbol; i++) {
        symbol *y = e->symbol[i];
        if (!is_definition(y)) continue;
        final_name(y, name, sizeof name);
        ok = insert(&t, hash_name(y->group, y->name), y, err) &&
             insert(&t, hash_name(ANY_GROUP, name), y, err);
    }
    for (size_t i = 0; ok && i < e->n_symbol; i++) {
        symbol *y = e->symbol[i];
        y->defined_by = y;
        if (y->sym.st_shndx != SHN_UNDEF) continue;
        symbol *d = find_slot(&t, hash_name(y->group, y->name))->y;
        if (!d) d = find_slot(&t, hash_name(ANY_GROUP, y->name))->y;
        if (!d) { /* of another library: one symbol for all */
            insert(&t, hash_name(ANY_GROUP, y->name), y, NULL);
            d = y;
        }
        y->defined_by = d;
    }
    free(t.slot);
    return ok;
}

/* ---- writing ---- */

typedef struct text {
    char *s;
    size_t n, cap;
    bool failed;
} text;

static size_t put(text *t, const void *s, size_t n) {
    size_t at = t->n;
    if (t->n + n > t->cap) {
        size_t cap = 2 * (t->cap + n + 256);
        char *grown = realloc(t->s, cap);
        if (!grown) {
            t->failed = true;
            return 0;
        }
        t->s = grown;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    return at;
}

static size_t put_name(text *t, const char *s) {
    return put(t, s, strlen(s) + 1);
}

static void put_symbol(symbol *y, bool local, text *table, text *names) {
    char name[256];
    final_name(y, name, sizeof name);
    Elf64_Sym s = y->sym;
    s.st_name = *name ? (uint32_t)put_name(names, name) : 0;
    if (local) s.st_info = ELF64_ST_INFO(STB_LOCAL, ELF64_ST_TYPE(s.st_info));
    y->out = table->n / sizeof s;
    put(table, &s, sizeof s);
}

/* Numbers the symbols, local ones first, without data that nothing refers to. Returns the number of
 * local ones. */
static size_t write_symbols(sn_elf *e, text *table, text *names) {
    for (size_t i = 0; i < e->n_section; i++)
        for (size_t k = 0; k < e->section[i].n_rela; k++) {
            size_t y = ELF64_R_SYM(e->section[i].rela[k].r_info);
            if (y) e->symbol[y - 1]->defined_by->needed = true;
        }
    put(table, &(Elf64_Sym){0}, sizeof(Elf64_Sym));
    size_t n_local = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < e->n_symbol; i++) {
            symbol *y = e->symbol[i];
            bool local = ELF64_ST_BIND(y->sym.st_info) == STB_LOCAL ||
                         (y->prefix && y->sym.st_shndx != SHN_UNDEF);
            bool function = ELF64_ST_TYPE(y->sym.st_info) == STT_FUNC; /* for debuggers */
            bool wanted = y->needed || function || (!local && is_definition(y));
            if (wanted && y->defined_by == y && local == !pass) put_symbol(y, local, table, names);
        }
        if (!pass) n_local = table->n / sizeof(Elf64_Sym);
    }
    return n_local;
}

static void align_to(text *f, size_t align) {
    static const char zero[4096];
    while (align && f->n % align) {
        size_t n = align - f->n % align;
        put(f, zero, n < sizeof zero ? n : sizeof zero);
    }
}

static void write_section(text *f, const section *s, Elf64_Shdr *h) {
    align_to(f, s->align);
    h->sh_offset = f->n;
    if (s->type == SHT_NOBITS) return;
    for (size_t k = 0; k < s->n_part; k++) {
        while (f->n < h->sh_offset + s->part[k].at && !f->failed) put(f, "", 1);
        put(f, s->part[k].data, s->part[k].size);
    }
}

/* Header numbers: 0, the sections, their relocations, symbols, names, the note of the stack. */
static void write_file(sn_elf *e, text *f, text *table, text *names, size_t n_local) {
    size_t n = e->n_section, n_head = 2 * n + 4, k = 1;
    Elf64_Shdr *h = calloc(n_head, sizeof *h);
    f->failed |= !h;
    if (!h) return;
    put(f, &(Elf64_Ehdr){0}, sizeof(Elf64_Ehdr));
    for (size_t i = 0; i < n; i++, k++) {
        const section *s = &e->section[i];
        h[k] = (Elf64_Shdr){.sh_type = s->type,
                            .sh_flags = s->flags,
                            .sh_addralign = s->align,
                            .sh_size = s->size,
                            .sh_name = (uint32_t)put_name(names, s->name)};
        write_section(f, s, &h[k]);
    }
    for (size_t i = 0; i < n; i++) {
        section *s = &e->section[i];
        if (!s->n_rela) continue;
        for (size_t r = 0; r < s->n_rela; r++) {
            size_t y = ELF64_R_SYM(s->rela[r].r_info);
            uint64_t out = y ? e->symbol[y - 1]->defined_by->out : 0;
            s->rela[r].r_info = ELF64_R_INFO(out, ELF64_R_TYPE(s->rela[r].r_info));
        }
        char name[SECTION_NAME + 8];
        snprintf(name, sizeof name, ".rela%s", s->name);
        align_to(f, 8);
        h[k++] = (Elf64_Shdr){.sh_type = SHT_RELA,
                              .sh_flags = SHF_INFO_LINK,
                              .sh_info = (uint32_t)i + 1,
                              .sh_addralign = 8,
                              .sh_entsize = sizeof(Elf64_Rela),
                              .sh_offset = f->n,
                              .sh_size = s->n_rela * sizeof(Elf64_Rela),
                              .sh_name = (uint32_t)put_name(names, name)};
        put(f, s->rela, s->n_rela * sizeof(Elf64_Rela));
    }
    size_t at_symbols = k, at_names = k + 1;
    for (size_t i = 1; i < k; i++)
        if (h[i].sh_type == SHT_RELA) h[i].sh_link = (uint32_t)at_symbols;
    align_to(f, 8);
    h[k++] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                          .sh_link = (uint32_t)at_names,
                          .sh_info = (uint32_t)n_local,
                          .sh_addralign = 8,
                          .sh_entsize = sizeof(Elf64_Sym),
                          .sh_offset = f->n,
                          .sh_size = table->n,
                          .sh_name = (uint32_t)put_name(names, ".symtab")};
    put(f, table->s, table->n);
    uint32_t strtab = (uint32_t)put_name(names, ".strtab"),
             stack = (uint32_t)put_name(names, ".note.GNU-stack");
    h[k++] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                          .sh_addralign = 1,
                          .sh_offset = f->n,
                          .sh_size = names->n,
                          .sh_name = strtab};
    put(f, names->s, names->n);
    h[k++] = (Elf64_Shdr){
        .sh_type = SHT_PROGBITS, .sh_addralign = 1, .sh_offset = f->n, .sh_name = stack};
    align_to(f, 8);
    Elf64_Ehdr head = {.e_type = ET_REL,
                       .e_machine = e->machine,
                       .e_version = EV_CURRENT,
                       .e_flags = e->flags,
                       .e_ehsize = sizeof head,
                       .e_shentsize = sizeof *h,
                       .e_shnum = (uint16_t)k,
                       .e_shstrndx = (uint16_t)at_names,
                       .e_shoff = f->n};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_ident[EI_VERSION] = EV_CURRENT;
    put(f, h, k * sizeof *h);
    if (!f->failed) memcpy(f->s, &head, sizeof head);
    free(h);
}

static bool hand_out(text *f, bool failed, sn_object *out, sn_error *err) {
    *out = (sn_object){0};
    if (failed || f->failed) {
        free(f->s);
        return out_of_memory(err);
    }
    *out = (sn_object){(uint8_t *)f->s, f->n};
    return true;
}

bool sn_elf_finish(sn_elf *e, sn_object *out, sn_error *err) {
    text f = {0}, table = {0}, names = {0};
    *out = (sn_object){0};
    if (2 * e->n_section + 4 >= SHN_LORESERVE)
        return sn_fail(
            err, SN_ERR_RANGE,
            "%zu sections of code: an object holds half of %d; compile for fewer targets, "
            "or fewer entries",
            e->n_section, SHN_LORESERVE);
    if (!resolve(e, err)) return false;
    put(&names, "", 1);
    size_t n_local = write_symbols(e, &table, &names);
    write_file(e, &f, &table, &names, n_local);
    bool failed = table.failed || names.failed;
    free(table.s);
    free(names.s);
    return hand_out(&f, failed, out, err);
}

/* ---- archives: "!<arch>", then members with a header of 60 characters each ---- */

static void put_member(text *f, const char *name, const void *data, size_t size) {
    char head[61];
    snprintf(head, sizeof head, "%-16.16s%-12d%-6d%-6d%-8o%-10zu`\n", name, 0, 0, 0, 0644, size);
    put(f, head, 60);
    put(f, data, size);
    if (f->n % 2) put(f, "\n", 1);
}

static void put_big_endian(text *t, size_t v) {
    const unsigned char b[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
                                (unsigned char)(v >> 8), (unsigned char)v};
    put(t, b, 4);
}

bool sn_elf_names(const sn_object *o, sn_object *names, sn_error *err) {
    input in;
    text list = {0};
    bool ok = open_input(&in, o, err);
    for (size_t i = 1; ok && i < in.n_sym; i++)
        if (ELF64_ST_BIND(in.sym[i].st_info) == STB_GLOBAL && in.sym[i].st_shndx != SHN_UNDEF)
            put_name(&list, in.strings + in.sym[i].st_name);
    free(in.to);
    free(in.base);
    free(in.symbol);
    return hand_out(&list, !ok, names, err);
}

bool sn_archive(const sn_object *o, const sn_object *names, const char *member, sn_object *out,
                sn_error *err) {
    text f = {0}, table = {0};
    size_t n = 0;
    for (size_t i = 0; i < names->size; i++) n += !names->data[i];
    size_t index_size = 4 + 4 * n + names->size, at = 8 + 60 + index_size + index_size % 2;
    put_big_endian(&table, n);
    for (size_t i = 0; i < n; i++) put_big_endian(&table, at);
    if (names->size) put(&table, names->data, names->size);
    put(&f, "!<arch>\n", 8);
    put_member(&f, "/", table.s, table.n);
    char name[32];
    snprintf(name, sizeof name, "%.15s/", member);
    put_member(&f, name, o->data, o->size);
    bool failed = table.failed;
    free(table.s);
    return hand_out(&f, failed, out, err);
}
