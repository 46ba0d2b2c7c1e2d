#!/bin/bash
# stage.sh NAME COMMAND...: run one stage of the tests, say what it is and how long it took. With STAGES set, the line is
# added to that file too.
set -u
name=$1; shift
echo "==> $name"
start=$SECONDS
"$@"
code=$?
word=passed; [ $code = 0 ] || word="FAILED (exit code $code)"
line=$(printf '%-13s %s in %d:%02d' "$name" "$word" $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)))
echo "<== $line"
[ -z "${STAGES:-}" ] || echo "$line" >> "$STAGES"
exit $code
