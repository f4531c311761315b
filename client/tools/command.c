/* command.c - the options and environment variables that all commands have, and the meaning of exit statuses. */
#include "command.h"

#include <stddef.h>

const pd_command_option pd_common_options[] = {
    { "server", 's', PD_OPTION_TEXT, "ADDRESS",
      .help =
          "Daemon to talk to: tcp://host:port, tls://host:port, host:port, :port, [v6]:port, unix:///path, or the name "
          "of a local daemon (default: $PARAMD_URL, else tcp://127.0.0.1:7070)" },
    { "timeout", 't', PD_OPTION_SECONDS, "SECONDS", .help = "Give up after so long without an answer", .preset = "5" },
    { "output", 'o', PD_OPTION_CHOICE, "text|wide|json",
      .help = "Print text for people, text with all columns uncut, or JSON for programs", .preset = "text" },
    { "json", 'j', PD_OPTION_FLAG, NULL, .help = "The same as -o json" },
    { "help", 'h', PD_OPTION_FLAG, NULL, .help = "Print this help" },
    { "version", 'V', PD_OPTION_FLAG, NULL, .help = "Print the version" },
    { NULL }
};

const pd_variable pd_variables[] = {
    { "PARAMD_URL", "Daemon to talk to, if --server is not given; several addresses are separated by commas" },
    { "PARAMD_TOKEN_FILE", "File with our token, for a tls:// address; only its owner and group may have access" },
    { "PARAMD_CA_FILE", "File with the authorities that may sign the daemon's certificate, if there is no token" },
    { "PARAMD_CERT_FILE", "File with our certificate, for a daemon that asks for one" },
    { "PARAMD_KEY_FILE", "File with the key of our certificate" },
    { "NO_COLOR", "Print no colours on a terminal, if it is set and not empty" },
    { NULL, NULL }
};

const char *const pd_exit_texts[] = {
    [PD_EXIT_OK] = "done",
    [PD_EXIT_FAILED] = "failed: the daemon refused the request, nothing matches, or a check did not pass",
    [PD_EXIT_USAGE] = "wrong usage: an unknown command or option, a missing argument, a wrong value or address",
    [PD_EXIT_UNREACHABLE] = "the daemon cannot be reached, or did not answer in time",
    NULL
};
