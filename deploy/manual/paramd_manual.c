/* paramd_manual.c - the program paramd-manual, which the build runs. It prints a manual page in scdoc's language, or
 * a completion script. */
#include <string.h>

#include "completion.h"
#include "paramctl_page.h"
#include "paramd_page.h"

typedef struct page {
    const char *name;
    void (*write)(FILE *out);
} page;

static const page pages[] = { { "paramctl.1", pd_paramctl_page },    { "paramd.8", pd_paramd_page },
                              { "paramd.conf.5", pd_conf_page },     { "paramctl.bash", pd_bash_completion },
                              { "paramctl.zsh", pd_zsh_completion }, { NULL, NULL } };

int main(int argc, char **argv)
{
    for (const page *p = pages; p->name != NULL && argc == 2; p++) {
        if (strcmp(p->name, argv[1]) != 0) continue;
        p->write(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    fprintf(stderr, "usage: paramd-manual PAGE, where PAGE is one of:");
    for (const page *p = pages; p->name != NULL; p++) fprintf(stderr, " %s", p->name);
    fprintf(stderr, "\n");
    return 2;
}
