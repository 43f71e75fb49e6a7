/* report_json.c: builds the document of a report; the first failure to allocate is remembered. */
#include "tools/inspect/report.h"

#include <math.h>

bool report_begin(report *r, sn_error *err) {
    *r = (report){.root = cJSON_CreateObject()};
    report_text(r, r->root, "format", "sinter report");
    report_number(r, r->root, "version", REPORT_VERSION);
    r->files = report_list(r, r->root, "files");
    return !r->full || sn_fail(err, SN_ERR_MEMORY, "out of memory for the report");
}

void report_put(report *r, cJSON *to, const char *key, cJSON *value) {
    bool ok = to && value &&
              (key ? cJSON_AddItemToObject(to, key, value) : cJSON_AddItemToArray(to, value));
    if (ok) return;
    cJSON_Delete(value);
    r->full = true;
}

void report_text(report *r, cJSON *to, const char *key, const char *value) {
    report_put(r, to, key, cJSON_CreateString(value));
}

void report_number(report *r, cJSON *to, const char *key, double value) {
    report_put(r, to, key, isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

void report_flag(report *r, cJSON *to, const char *key, bool value) {
    report_put(r, to, key, cJSON_CreateBool(value));
}

cJSON *report_list(report *r, cJSON *to, const char *key) {
    cJSON *list = cJSON_CreateArray();
    report_put(r, to, key, list);
    return r->full ? NULL : list;
}

cJSON *report_object(report *r, cJSON *to, const char *key) {
    cJSON *object = cJSON_CreateObject();
    report_put(r, to, key, object);
    return r->full ? NULL : object;
}

void report_add_number(report *r, cJSON *list, double value) {
    report_number(r, list, NULL, value);
}

void report_add_text(report *r, cJSON *list, const char *value) {
    report_text(r, list, NULL, value);
}
