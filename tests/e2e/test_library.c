/* Tests the shared libraries as another program sees them: they export the functions of their public headers, and no
 * others. */
#include "test.h"

enum { MAX_NAMES = 200, NAME_BYTES = 128 };

typedef struct names {
    char at[MAX_NAMES][NAME_BYTES];
    int n;
} names;

/* Runs a command that prints one name on each line, and adds these names to the list. */
static void read_names(names *all, const char *command)
{
    FILE *output = popen(command, "r");

    assert_non_null(output);
    while (all->n < MAX_NAMES && fscanf(output, "%127s", all->at[all->n]) == 1) all->n++;
    assert_int_equal(pclose(output), 0);
}

static bool has(const names *all, const char *name)
{
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->at[i], name) == 0) return true;
    return false;
}

/* Reads the names of the functions that a header declares as public: their declaration begins with PD_API. */
static void read_header(names *all, const char *header)
{
    char command[1024];

    snprintf(command, sizeof command, "sed -nE 's/^PD_API [^(]*[ *](pd_[a-z0-9_]+)\\(.*/\\1/p' %s/include/paramd/%s.h",
             PD_SOURCE_DIR, header);
    read_names(all, command);
}

/* Reads the names that a library exports. Skips names that begin with "_", which sanitizers and the linker add.
 * Removes the symbol version, so a function with another version or none has a wrong name. */
static void read_library(names *all, const char *library, const char *version)
{
    char command[1024];

    snprintf(command, sizeof command,
             "nm -D --defined-only --with-symbol-versions '%s/../lib/%s.so' | awk '$3 !~ /^_/ && $2 != \"A\" { "
             "sub(\"@@%s$\", \"\", $3); print $3 }'",
             getenv("PARAMD_BIN"), library, version);
    read_names(all, command);
}

static void expect_same(const names *exported, const names *declared)
{
    for (int i = 0; i < exported->n; i++)
        if (!has(declared, exported->at[i])) fail_msg("%s is exported, and no header declares it", exported->at[i]);
    for (int i = 0; i < declared->n; i++)
        if (!has(exported, declared->at[i])) fail_msg("%s is declared, and not exported", declared->at[i]);
}

TEST(the_client_library_exports_exactly_its_public_functions)
{
    static names exported, declared;

    read_library(&exported, "libparamd", "PARAMD_0.1");
    read_header(&declared, "client");
    read_header(&declared, "diloco");
    read_header(&declared, "tensor");
    read_header(&declared, "error");
    assert_true(declared.n > 30);
    expect_same(&exported, &declared);
}

TEST(the_optimizer_library_exports_exactly_its_public_functions)
{
    static names exported, declared;

    read_library(&exported, "libparamd_optim", "PARAMD_OPTIM_0.1");
    read_header(&declared, "optim");
    read_header(&declared, "tensor");
    read_header(&declared, "error");
    assert_true(declared.n > 30);
    expect_same(&exported, &declared);
}
