/* cmd_completion.c: `sinter completion`: scripts for shells. They ask the program, `sinter
 * --complete WORDS…`, so that they follow the tables of options. */
#include "tools/cmd.h"

#include <stdio.h>
#include <string.h>

#define NAME "sinter completion"

typedef struct options {
    const char *shell;
} options;

static const arg table[] = {
    {"SHELL", 0, ARG_PLACE, offsetof(options, shell), "bash|zsh|fish", NULL, 0, 0,
     "bash, zsh or fish"},
    {0},
};

static const arg_command command = {
    NAME, "print a script that completes command lines in a shell", NULL, table,
    .examples = "eval \"$(sinter completion bash)\"          # in ~/.bashrc\n"
                "eval \"$(sinter completion zsh)\"           # in ~/.zshrc, after compinit\n"
                "sinter completion fish | source           # in ~/.config/fish/config.fish\n"};

static const struct {
    const char *shell, *script;
} scripts[] = {
    {"bash", "_sinter() {\n"
             "    local candidate rest\n"
             "    COMPREPLY=()\n"
             "    while IFS=$'\\t' read -r candidate rest; do\n"
             "        if [ \"$candidate\" = :files ]; then compopt -o default 2>/dev/null\n"
             "        else COMPREPLY+=(\"$candidate\"); fi\n"
             "    done < <(\"${COMP_WORDS[0]}\" --complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
             "2>/dev/null)\n"
             "}\n"
             "complete -F _sinter sinter\n"},
    {"zsh", "#compdef sinter\n"
            "_sinter() {\n"
            "    local line files\n"
            "    local -a list\n"
            "    while IFS= read -r line; do\n"
            "        if [[ $line == :files ]]; then files=1\n"
            "        else list+=(\"${${line//:/\\\\:}/$'\\t'/:}\"); fi\n"
            "    done < <(\"${words[1]}\" --complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
            "    (( $#list )) && _describe sinter list\n"
            "    [[ -n $files ]] && _files\n"
            "}\n"
            "if [[ $funcstack[1] == _sinter ]]; then _sinter \"$@\"; else compdef _sinter sinter; "
            "fi\n"},
    {"fish", "function __sinter_complete\n"
             "    set -l words (commandline -opc) (commandline -ct)\n"
             "    for line in ($words[1] --complete $words[2..-1] 2>/dev/null)\n"
             "        if test \"$line\" = :files\n"
             "            __fish_complete_path (commandline -ct)\n"
             "        else\n"
             "            echo $line\n"
             "        end\n"
             "    end\n"
             "end\n"
             "complete -c sinter -f -a '(__sinter_complete)'\n"},
};

int cmd_completion(int argc, char **argv) {
    options o = {0};
    int code = sn_args_parse(&command, argc, argv, &o);
    if (code != ARGS_RUN) return code;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        if (strcmp(o.shell, scripts[i].shell) != 0) continue;
        fputs(scripts[i].script, stdout);
        return cmd_finish(NAME);
    }
    sn_error err = {0};
    sn_fail(&err, SN_ERR_USAGE, "'%s': expected bash, zsh or fish", o.shell);
    return cmd_fail(NAME, &err);
}
