# Sourced by the steps of action.yml, before they run anything else.
#
# The workspace holds what a pull request brought. The step leaves it for $FOLDER, which belongs to
# the runner and is made where there is none, so that neither Python nor pip nor git finds anything
# of the workspace. Variables that lead back there are the workflow's, and are not taken over.

unset "${!PYTHON@}" "${!PIP_@}" CDPATH NETRC

# Entries of PATH that are relative or lie in the workspace are left out.
isolated_path=
isolated_from=$(cd -P -- "$GITHUB_WORKSPACE" && pwd -P)
IFS=: read -r -a isolated_entries <<< "$PATH"
for isolated_entry in "${isolated_entries[@]}"; do
    [[ $isolated_entry == /* ]] || continue
    isolated_real=$(cd -P -- "$isolated_entry" 2>/dev/null && pwd -P) || continue
    [[ $isolated_real/ == "$isolated_from"/* ]] ||
        isolated_path+=${isolated_path:+:}$isolated_entry
done
PATH=$isolated_path

FOLDER=${FOLDER:-$(mktemp -d "$RUNNER_TEMP/lancestat.XXXXXX")}
cd -- "$FOLDER"

# The whole path of a folder in the workspace, which is never taken for an option.
in_workspace() {
    [[ $1 == /* ]] || set -- "$GITHUB_WORKSPACE/$1"
    printf '%s' "$1"
}
