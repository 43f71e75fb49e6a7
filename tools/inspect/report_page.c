/* report_page.c: writes a report: the page (page/) with its styles, its scripts and the document in
 * it, or the document alone. */
#include "tools/embed/embedded.h"
#include "tools/inspect/report.h"

#include <stdlib.h>
#include <string.h>

/* In a script no "</" may occur that is not its end; "<\/" is the same string in JSON. */
static void write_in_script(FILE *f, const char *s) {
    for (; *s; s++) {
        fputc(*s, f);
        if (*s == '<' && s[1] == '/') fputc('\\', f);
        if (*s == '<' && s[1] == '!') fputs("\\u0021", f), s++;
    }
}

/* page.html with lines "<!-- include NAME -->" replaced by the file page/NAME, and
 * "<!-- data -->" by the document. */
static bool write_page(FILE *f, const char *json, sn_error *err) {
    static const char folder[] = "tools/inspect/page/", include[] = "<!-- include ";
    const char *page = embedded_text("tools/inspect/page/page.html");
    if (!page) return sn_fail(err, SN_ERR_INTERNAL, "the page of reports is not in the program");
    for (const char *s = page; *s;) {
        size_t n = strcspn(s, "\n");
        n += s[n] == '\n';
        if (!strncmp(s, "<!-- data -->", 13)) {
            write_in_script(f, json);
        } else if (!strncmp(s, include, sizeof include - 1)) {
            char name[160];
            const char *from = s + sizeof include - 1;
            snprintf(name, sizeof name, "%s%.*s", folder, (int)strcspn(from, " "), from);
            const char *text = embedded_text(name);
            if (!text) return sn_fail(err, SN_ERR_INTERNAL, "%s is not in the program", name);
            fputs(text, f);
        } else {
            fwrite(s, 1, n, f);
        }
        s += n;
    }
    return true;
}

bool report_write(FILE *f, const report *r, bool json_only, sn_error *err) {
    char *json = r->full ? NULL : cJSON_PrintUnformatted(r->root);
    if (!json) return sn_fail(err, SN_ERR_MEMORY, "out of memory for the report");
    bool ok = true;
    if (json_only)
        fprintf(f, "%s\n", json);
    else
        ok = write_page(f, json, err);
    free(json);
    return ok;
}
