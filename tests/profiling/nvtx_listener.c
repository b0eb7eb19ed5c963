/* The smallest NVTX tool: prints what a process says to one domain. Loaded by NVTX through NVTX_INJECTION64_PATH. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message; /* a registered string is its own text here */
} Attributes;

typedef void (*Function)(void);
typedef struct {
    size_t size;
    int (*module_functions)(int module, Function ***table, unsigned int *size);
} Callbacks;

static uint64_t last_range = 0;

static void say(const char *what, const Attributes *a) {
    printf("%s %s %u %08x\n", what, a->message, a->category, a->color);
    fflush(stdout);
}
static void *create(const char *name) { printf("domain %s\n", name); return strdup(name); }
static void *string(void *domain, const char *text) { return strdup(text); }
static void category(void *domain, uint32_t id, const char *name) { printf("category %u %s\n", id, name); }
static void mark(void *domain, const Attributes *a) { say("mark", a); }
static int push(void *domain, const Attributes *a) { say("push", a); return 0; }
static int pop(void *domain) { printf("pop\n"); return 0; }
static uint64_t start(void *domain, const Attributes *a) { say("start", a); return ++last_range; }
static void end(void *domain, uint64_t id) { printf("end %llu\n", (unsigned long long)id); fflush(stdout); }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const Callbacks *callbacks = export_table(1);
    Function **table;
    unsigned int size;
    if (callbacks == NULL || !callbacks->module_functions(5, &table, &size) || size < 13)
        return 0;
    *table[1] = (Function)mark;
    *table[2] = (Function)start;
    *table[3] = (Function)end;
    *table[4] = (Function)push;
    *table[5] = (Function)pop;
    *table[8] = (Function)category;
    *table[10] = (Function)string;
    *table[12] = (Function)create;
    return 1;
}
