#!/bin/sh
# Runs every line of the table, as many at a time as there are processors, and compares.
#
#   check.sh             the whole table, but for the lines that begin with «long»
#   check.sh PATTERN     the lines whose name matches the regular expression
#   check.sh -t NAME     one line, and the steps that lead to what it found
#
# A line is a name, the result that is expected, the property that must fail, and defines. «fail» means that SPIN must
# find a counterexample. Needs spin and gcc.
set -u
cd "$(dirname "$0")" || exit 1

table() { cat <<'END'
blind             pass -      -DATTEMPTS=1
lookup            pass -      -DLOOKUP -DATTEMPTS=1 -DNODECISION
lookup-person     pass -      -DLOOKUP -DFEW -DONE
keys              pass -      -DKEYS -DATTEMPTS=1 -DNODECISION
keys-person       pass -      -DKEYS -DATTEMPTS=1 -DFEW -DONE
keys-success-only pass -      -DKEYS -DSUCCESS_ONLY -DATTEMPTS=1 -DNODECISION
row-lost          pass -      -DLOOKUP -DROWLOSS -DATTEMPTS=1 -DCHARGE_ONLY -DONE
long-row-lost     pass -      -DLOOKUP -DROWLOSS -DATTEMPTS=1 -DCHARGE_ONLY -DNODECISION -DFEW
clock-jumps       pass -      -DLOOKUP -DJUMP -DATTEMPTS=1 -DCHARGE_ONLY -DNODECISION
clock-jumps-person pass -     -DLOOKUP -DJUMP -DATTEMPTS=1 -DCHARGE_ONLY -DFEW -DONE
two-resolvers     pass -      -DLOOKUP -DTWO -DATTEMPTS=1 -DCHARGE_ONLY -DNODECISION
wrong-lookup      pass -      -DLOOKUP -DWRONGLY -DATTEMPTS=1 -DCHARGE_ONLY -DNODECISION
wrong-lookup-person pass -    -DLOOKUP -DWRONGLY -DATTEMPTS=1 -DCHARGE_ONLY -DFEW -DONE
schemas           pass -      -DLOOKUP -DSCHEMAS -DATTEMPTS=1 -DFEW -DONE -DNODECISION
shared-reference  pass -      -DSHARED -DLOOKUP -DATTEMPTS=1 -DCHARGE_ONLY -DFEW -DONE
tries             pass -      -DCOUNT -DLOOKUP -DCHARGE_ONLY -DFEW -DONE
errs              pass -      -DERRS -DGENERATIONS -DKEYS -DKEYLIFE=255 -DWINDOW=0 -DSUCCESS_ONLY -DCHARGE_ONLY -DATTEMPTS=1 -DONE
errs-request      pass -      -DERRS -DOTHER -DKEYS -DKEYLIFE=255 -DWINDOW=0 -DCHARGE_ONLY -DATTEMPTS=1 -DFEW -DONE
generations       pass -      -DGENERATIONS -DKEYS -DATTEMPTS=1 -DONE
ends-lookup       pass -      -DLIVE -DCHARGE_ONLY -DFAULTS=1 -DLOOKUP -DFEW -DONE
ends-blind        pass -      -DLIVE -DCHARGE_ONLY -DFAULTS=2 -DFEW -DONE
pause-key-forever pass -      -DPAUSE -DKEYS -DKEYLIFE=255 -DWINDOW=0 -DCHARGE_ONLY -DATTEMPTS=1 -DNODECISION
pause-both-shown  pass -      -DPAUSE -DCHARGES=2 -DCHARGE_ONLY -DATTEMPTS=1 -DNODECISION
long-lookup       pass -      -DLOOKUP
long-keys         pass -      -DKEYS -DATTEMPTS=1
long-schemas      pass -      -DLOOKUP -DSCHEMAS -DATTEMPTS=1 -DFEW -DONE
long-schemas-keys pass -      -DKEYS -DSCHEMAS -DATTEMPTS=1 -DFEW -DONE -DNODECISION
long-ends-lookup  pass -      -DLIVE -DCHARGE_ONLY -DFAULTS=2 -DLOOKUP -DFEW -DONE
long-tries        pass -      -DCOUNT -DLOOKUP -DATTEMPTS=1 -DCHARGE_ONLY
limit-pause       fail charge -DPAUSE -DLOOKUP -DCHARGE_ONLY
limit-pause-key   fail charge -DPAUSE -DKEYS -DCHARGE_ONLY
limit-row-lost    fail charge -DROWLOSS -DLOOKUP -DM_MISSING_ROW -DCHARGE_ONLY
limit-index       fail charge -DLOOKUP -DWRONGLY -DNO_NEWER -DCHARGE_ONLY
m-call-first      fail charge -DM_CALL_FIRST -DCHARGE_ONLY
m-commit-assumed  fail charge -DM_COMMIT_ASSUMED -DCHARGE_ONLY
m-send-ignored    fail charge -DM_SEND_IGNORED -DCHARGE_ONLY
m-no-deadline     fail charge -DM_NO_DEADLINE -DLOOKUP -DCHARGE_ONLY
m-long-call       fail charge -DTIMEOUT=4 -DLOOKUP -DCHARGE_ONLY
m-absent-at-once  fail charge -DM_ABSENT_AT_ONCE -DLOOKUP -DCHARGE_ONLY
m-absent-early    fail charge -DABSENT=0 -DLOOKUP -DCHARGE_ONLY
m-judged-after    fail charge -DM_JUDGED_AFTER -DLOOKUP -DCHARGE_ONLY
m-database-clock  fail charge -DM_DATABASE_CLOCK -DJUMP -DLOOKUP -DCHARGE_ONLY
m-watch-gap       fail charge -DM_WATCH_GAP -DJUMP -DLOOKUP -DCHARGE_ONLY
m-watch-send      fail charge -DM_WATCH_SEND -DLOOKUP -DCHARGE_ONLY
m-watch-overlap   fail charge -DM_WATCH_OVERLAP -DTWO -DLOOKUP -DCHARGE_ONLY -DATTEMPTS=1 -DNODECISION
m-no-sample       fail charge -DM_NO_SAMPLE -DWRONGLY -DLOOKUP -DCHARGE_ONLY
m-other-account   fail charge -DM_OTHER_ACCOUNT -DWRONGLY -DLOOKUP -DCHARGE_ONLY
m-older-sample    fail charge -DM_OLDER_SAMPLE -DWRONGLY -DLOOKUP -DCHARGE_ONLY
m-replay-late     fail charge -DM_REPLAY_LATE -DKEYS -DCHARGE_ONLY
m-key-short       fail charge -DKEYLIFE=4 -DKEYS -DATTEMPTS=1 -DCHARGE_ONLY -DONE
m-refusal-clears  fail state  -DM_REFUSAL_CLEARS -DKEYS -DSUCCESS_ONLY -DATTEMPTS=1 -DONE
m-person-early    fail charge -DM_PERSON_EARLY -DCHARGE_ONLY
m-person-late     fail charge -DM_PERSON_JUDGED_AFTER -DCHARGE_ONLY
m-person-blind    fail charge -DABSENT=0 -DCHARGE_ONLY
m-person-stale    fail charge -DM_PERSON_STALE -DLOOKUP -DCHARGE_ONLY
m-person-decline  fail state  -DM_DECLINE_UNASKED
m-person-new-key  fail charge -DM_PERSON_NEW_KEY -DERRS -DGENERATIONS -DKEYS -DKEYLIFE=255 -DWINDOW=0 -DSUCCESS_ONLY -DCHARGE_ONLY -DONE
m-any-request     fail request -DM_ANY_REQUEST -DERRS -DOTHER -DKEYS -DKEYLIFE=255 -DWINDOW=0 -DCHARGE_ONLY -DBREADTH -DFEW -DONE
m-put-back        fail charge -DM_PUT_BACK -DROWLOSS -DLOOKUP -DCHARGE_ONLY
m-retry-new       fail charge -DM_RETRY_NEW -DROWLOSS -DLOOKUP -DCHARGE_ONLY
m-overslept       fail charge -DM_OVERSLEPT -DROWLOSS -DLOOKUP -DCHARGE_ONLY -DATTEMPTS=1 -DNODECISION
m-vanished        fail charge -DM_VANISHED -DROWLOSS -DLOOKUP -DCHARGE_ONLY
long-m-schema-doubt fail charge -DM_SCHEMA_DOUBT -DSCHEMAS -DLOOKUP -DFEW -DONE -DNODECISION -DATTEMPTS=1 -DBREADTH
long-m-schema-back fail charge -DM_SCHEMA_BACK -DSCHEMAS -DLOOKUP -DFEW -DONE -DNODECISION -DATTEMPTS=1 -DBREADTH
m-schema-ended    fail charge -DM_SCHEMA_ENDED -DSCHEMAS -DLOOKUP -DFEW -DONE -DNODECISION -DATTEMPTS=1
long-m-schema-blind fail charge -DM_SCHEMA_BLIND -DSCHEMAS -DLOOKUP -DFEW -DONE -DNODECISION -DATTEMPTS=1 -DBREADTH
m-schema-put-back fail charge -DM_PUT_BACK -DSCHEMAS -DLOOKUP -DFEW -DONE -DNODECISION -DATTEMPTS=1 -DBREADTH
m-shared          fail paid   -DM_SHARED -DSHARED
m-note-stays      fail tries  -DM_NOTE_STAYS -DCOUNT -DLOOKUP -DCHARGE_ONLY
m-late-200        fail saved  -DM_LATE_200
m-second-dropped  fail saved  -DM_SECOND_DROPPED -DPAUSE -DCHARGES=2 -DCHARGE_ONLY
m-ack-doubt       fail ack    -DM_ACK_DOUBT
m-ack-first       fail ends   -DM_ACK_FIRST -DLIVE -DCHARGE_ONLY -DFAULTS=1
END
}

# line NAME: builds and runs one line of the table, and writes its row of the report.
line() {
	set -- $(table | awk -v name="$1" '$1 == name')
	name=$1 want=$2 what=$3
	shift 3
	dir=$(mktemp -d) || exit 1
	trap 'rm -rf "$dir"' EXIT
	trap 'exit 1' INT TERM
	cp fence.pml "$dir" && cd "$dir" || exit 1
	case "$want $*" in
	*LIVE*) search='-DNFAIR=3' flags='-a -f' ;;
	*BREADTH*) search='-DSAFETY -DNOFAIR -DBFS -DNOREDUCE' flags='-E' ;; # where the shortest way is found soonest
	*) search='-DSAFETY -DNOFAIR' flags='-E' ;;
	esac
	begin=$(date +%s)
	spin -a "$@" fence.pml >spin.log 2>&1 &&
		gcc -O2 -w -DMEMLIM=${MEMORY:-3000} $search -o pan pan.c >gcc.log 2>&1 &&
		timeout ${LIMIT:-600} ./pan $flags -m1000000 -w24 >pan.log 2>&1
	got=unfinished found=-
	if grep -qE 'errors: [1-9]' pan.log 2>/dev/null; then
		got=fail
		case $(sed -n 's/^pan:1: //p' pan.log) in # by what only its own assertion speaks of
		*charged\<=*) found=charge ;;
		*charged==0*) found=state ;;
		*'charged>0'*) found=paid ;;
		*chargedFor*) found=request ;;
		*credit*) found=tries ;;
		*answer*) found=saved ;;
		*refOf*'>0'*) found=ack ;;
		*'acceptance cycle'*) found=ends ;;
		esac
	elif grep -q 'errors: 0$' pan.log 2>/dev/null && ! grep -qE 'not completed|depth too small|out of memory' pan.log; then
		got=pass
	fi
	mark=WRONG
	[ "$got $found" = "$want $what" ] && mark=ok
	printf '%-5s %-17s %-4s %-6s %9s states %3s s\n' "$mark" "$name" "$got" "$found" \
		"$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log 2>/dev/null | head -n 1)" \
		$(($(date +%s) - begin))
	[ "$got" = unfinished ] && cat spin.log gcc.log pan.log 2>/dev/null
	[ -n "${TRAIL:-}" ] && [ "$got" = fail ] && spin -t -p "$@" fence.pml
	[ "$mark" = ok ]
}

case "${1:-}" in
-l) line "$2" ;; # of itself, below
-t) TRAIL=1 line "$2" ;;
*)
	for tool in spin gcc; do
		command -v $tool >/dev/null || { echo "check.sh: $tool is missing; install the package of that name" >&2; exit 1; }
	done
	table | awk -v pattern="${1:-}" 'pattern == "" ? !/^long/ : $1 ~ pattern {print $1}' | xargs -n 1 -P "$(getconf _NPROCESSORS_ONLN)" ./check.sh -l ||
		{ echo 'check.sh: the model does not behave as its table says' >&2; exit 1; }
	;;
esac
