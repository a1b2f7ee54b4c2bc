/* The fence for one key, for the model checker SPIN. README.md says how to run it and what the defines mean.
 *
 * Every actor is a loop over guarded atomic actions, so between any two of them every other actor may act, time may
 * pass (SIGSTOP, a paused machine) and the actor may be killed (SIGKILL). Kills, redeliveries, retries from the
 * failure transport, look-ups and decisions are not limited in number: the claim is kept as «who knows the row's
 * latest claim» instead of as a number, so the states are finite without such limits.
 *
 * Clocks count down. Tick lowers all of them; it waits only for a request that must reach the provider by now.       */
#ifndef TIMEOUT
#define TIMEOUT 1      /* of a call, counted on the worker's own clock from before the capture */
#endif
#ifndef LEASE
#define LEASE   2      /* of a claim, in the database's clock: longer than TIMEOUT */
#endif
#ifndef IDLE
#define IDLE    2      /* the provider closes a connection on which it gets no request for so long */
#endif
#define LATE    1      /* a request may be under way for so long before the provider runs it */
#define LAG     1      /* a charge may be missing in the look-up for so long */
#ifndef ABSENT
#define ABSENT  1      /* absent_after, from the end of the lease; 0 is too little */
#endif
#ifndef WINDOW
#define WINDOW  2      /* a replay may start so long after the first capture */
#endif
#ifndef KEYLIFE
#define KEYLIFE 4      /* the provider knows a key for so long after it ran the request; 3 is too little, 255 for ever */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef CHARGES
#define CHARGES 1      /* more than one only to see that a second charge is not hidden */
#endif
#define FOREVER 255
#define UNSEEN  255    /* the resolver has not begun to watch the latest send */

mtype:state = { NONE, CAPTURED, SETTLED, PENDING, DECLINED, RELEASED, DOUBT, HELD };
mtype:net   = { FREE, OPEN, FLYING, UNREAD, ANSWERED };           /* UNREAD: flying, and nobody waits for the answer */
mtype:step  = { IDLING, INSERT, DIAL, SEND, WAIT, SAVE, ACK, PARK, REMOVE, ASKED };

/* What a call may come to; below REFUSED it is a reference. */
#define REFUSED 10     /* a definite no */
#define NOTHING 11     /* 429 and its like; or the own clock said «too late», and not a byte left */
#define WRONG   12     /* 404 and its like */
#define LOST    13     /* anything else: 500, a cut answer, the time is up */

/* The row. */
mtype:state st = NONE;
byte knows;            /* one bit for each actor that knows the latest claim: every write gives the row a new one */
byte until;            /* countdown to send_until + absent_after in the database's clock */
byte spare;            /* attempts left: allowance + free captures - captures */
byte ref, other;
byte window;           /* for replays */
#define R 2            /* the resolver; 0 and 1 are the workers */
#define P 3            /* the person */
#define KNOWS(a)   ((knows >> (a)) & 1)
#define LEASE_OVER (until <= ABSENT)
#define ENDED      (st == SETTLED || st == DECLINED || st == PENDING)
#ifdef ROWLOSS
#define KEPT       true                      /* only the charges are counted where rows are lost */
#else
#define KEPT       (ref > 0)                 /* a pending row that was held since keeps its reference */
#endif
#define OPENROW    (st == CAPTURED || st == DOUBT)

/* The queue has one message, the failure transport a copy of it or none. */
byte q = 1;            /* 0: removed, 1: ready, 2 + i: reserved by worker i */
bool failed;
#define GONE    0
#define READY   1
#define BY(i)   (2 + i)

/* One connection for each caller; t is its idle limit, then the time to reach the provider. */
mtype:net net[3] = FREE;
byte t[3], deadline[3], answer[3];

/* The provider. */
byte charged, lag, cached, cachedAnswer;

/* The resolver's own clock, and the budgets of the lines that need some. */
byte watch = UNSEEN;
#ifdef FAULTS
byte faults = FAULTS;
#define FAULT(p) (faults > 0 && (p)) -> faults--
#define CALLS(w) (Worker[w]:pc == DIAL || (Worker[w]:pc == INSERT && (st == NONE || (st == RELEASED && spare > 0))))
#define PROMPT   (!CALLS(1) && !CALLS(2))
#else
#define FAULT(p) (p)
#define PROMPT true
#endif
#ifdef ROWLOSS
bool before;           /* the message has been delivered before */
#endif

#ifdef CHARGE_ONLY
#define CHECK_STATE
#else                  /* RELEASED and DECLINED say that no money moved: looked at whenever either side changes */
#define CHECK_STATE assert(charged == 0 || (st != RELEASED && st != DECLINED))
#endif

/* ---- writes of the row: each is one committed statement that names the claim it follows ---- */
inline write(s) { st = s; knows = 0; CHECK_STATE }
inline claim(a) { knows = 1 << a; until = LEASE + ABSENT; watch = UNSEEN }      /* a capture or a replay */
inline capture(a) {
	if :: st == NONE -> spare = ATTEMPTS; window = WINDOW :: else fi;
	st = CAPTURED; spare--; claim(a)
}
inline forget(a) { knows = knows & (15 - (1 << a)) }

/* A reference is saved in every state, whoever has the claim by now, and also where the row is gone. */
inline adopt(k) {
	if
#ifdef M_LATE_200
	:: !KNOWS(i) -> skip
	:: KNOWS(i) ->
#else
	:: true ->
#endif
		if
		:: ref == 0 -> ref = k
#ifndef M_SECOND_DROPPED
		:: ref != 0 && ref != k -> other = k                        /* critical alert */
#endif
		:: else
		fi;
		if
		:: st == SETTLED || st == PENDING
		:: st != SETTLED && st != PENDING ->
			if :: st = SETTLED :: st = PENDING fi;
			knows = 0; until = 0; watch = UNSEEN; window = 0        /* these mean nothing any more */
		fi
	fi
}

#ifdef M_CLAIM_IGNORED
#define MAY_WRITE(a) OPENROW
#else
#define MAY_WRITE(a) KNOWS(a)
#endif

/* ---- the call, the same for a worker and for the resolver's replay ---- */
#ifdef M_NO_DEADLINE
#define IN_TIME(i) true
#else
#define IN_TIME(i) (deadline[i] > 0)
#endif
#define CALL(i) \
	:: atomic { pc == DIAL && net[i] == FREE && IN_TIME(i) -> net[i] = OPEN; t[i] = IDLE; pc = SEND } \
	:: atomic { pc == DIAL && !IN_TIME(i) -> answer[i] = NOTHING; pc = SAVE } \
	:: atomic { pc == SEND && net[i] == OPEN -> net[i] = FLYING; t[i] = LATE; pc = WAIT } \
	:: atomic { pc == SEND && net[i] == FREE -> answer[i] = LOST; pc = SAVE } \
	:: atomic { pc == WAIT && net[i] == ANSWERED -> net[i] = FREE; pc = SAVE } \
	:: atomic { pc == WAIT && deadline[i] == 0 -> hangUp(i); answer[i] = LOST; pc = SAVE }
inline hangUp(i) {
	if
	:: net[i] == FLYING -> net[i] = UNREAD
	:: net[i] == OPEN || net[i] == ANSWERED -> net[i] = FREE; t[i] = 0
	:: else
	fi
}
inline rest(i) { hangUp(i); forget(i); answer[i] = 0; deadline[i] = 0; pc = IDLING }

/* A worker that lives and has read a 200 leaves no row without it. */
#ifdef ROWLOSS
#define saved(i) skip
#else
inline saved(i) { assert(answer[i] == 0 || answer[i] >= REFUSED || ref == answer[i] || other == answer[i]) }
#endif
inline later(i) { saved(i); if :: q == BY(i) -> q = READY :: else fi; rest(i) }

/* What the row says decides what becomes of the message, not what the worker believes. */
inline byRow() {
	if
	:: ENDED -> pc = ACK
	:: st == HELD -> pc = PARK
#ifdef M_ACK_DOUBT
	:: st == DOUBT -> pc = ACK
#endif
	:: else -> later(i)
	fi
}

proctype Worker(byte i) {
	mtype:step pc = IDLING;
#ifdef ROWLOSS
	bool again;
#define FIRST (!again && q == BY(i))    /* a delivery whose reserve has ended is not begun as a first one */
#else
#define FIRST true
#endif
	do
	:: atomic { pc == IDLING && q == READY -> q = BY(i); deadline[i] = TIMEOUT; pc = INSERT;
#ifdef M_ACK_FIRST
		q = GONE;
#endif
#ifdef ROWLOSS
#ifndef M_MISSING_ROW
		again = before;
#endif
		before = true
#endif
		}

	/* Insert first, look second. */
	:: atomic { pc == INSERT && ((st == NONE && FIRST) || (st == RELEASED && spare > 0)) ->
#ifdef M_CALL_FIRST
		pc = DIAL
#else
		if
		:: capture(i); pc = DIAL
		:: FAULT(true); if :: capture(i) :: true fi;              /* the answer to the commit is lost */
#ifdef M_COMMIT_ASSUMED
			pc = DIAL
#else
			if :: true :: later(i) fi                         /* the same insert again, or give up */
#endif
		fi
#endif
		}
	:: atomic { pc == INSERT && st == NONE && !FIRST -> capture(i); write(DOUBT); later(i) }
	:: atomic { pc == INSERT && st == CAPTURED && KNOWS(i) -> pc = DIAL }    /* the own attempt id */
	:: atomic { pc == INSERT && st == CAPTURED && !KNOWS(i) ->
		if :: LEASE_OVER -> write(DOUBT) :: else fi; later(i) }
	:: atomic { pc == INSERT && st == DOUBT -> byRow() }
	:: atomic { pc == INSERT && (ENDED || st == HELD) -> byRow() }
	:: atomic { pc == INSERT && st == RELEASED && spare == 0 -> pc = PARK }

	CALL(i)

	:: atomic { pc == SAVE ->
		if
		:: answer[i] < REFUSED -> adopt(answer[i])
		:: answer[i] >= REFUSED && !MAY_WRITE(i) -> skip             /* a note beside the row */
		:: answer[i] == REFUSED && MAY_WRITE(i) -> write(DECLINED)
		:: answer[i] == NOTHING && MAY_WRITE(i) -> spare++; write(RELEASED)
		:: answer[i] == WRONG && MAY_WRITE(i) -> write(HELD)
		:: answer[i] == LOST && MAY_WRITE(i) -> write(DOUBT)
		fi;
		byRow() }

	:: atomic { pc == ACK -> assert(ENDED || KEPT); saved(i); q = GONE; rest(i) }
	:: atomic { pc == PARK -> failed = true; pc = REMOVE }
	:: atomic { pc == REMOVE -> saved(i); knows = 0;                     /* notes the parking in the row, then acks */
		if :: st == RELEASED && spare < ATTEMPTS -> spare++ :: else fi;
		if :: q == BY(i) -> q = GONE :: else fi; rest(i) }

	:: atomic { FAULT(pc != IDLING) -> rest(i) }                      /* SIGKILL */
	od
}
/* ---- the resolver works from the row alone ---- */
#ifdef M_ABSENT_AT_ONCE
#define PROOF true
#else
#ifdef M_DATABASE_CLOCK
#define PROOF (until == 0)
#else
#define PROOF (watch == 0)
#endif
#endif
proctype Resolver() {
	mtype:step pc = IDLING;
	bool found, late;
#define i R
	do
	:: atomic { st == CAPTURED && (LEASE_OVER || watch <= ABSENT) -> write(DOUBT) }
	:: atomic { st == DOUBT && until == 0 && pc == IDLING -> write(HELD) }    /* hold_after */
	:: atomic { st == PENDING && pc == IDLING -> if :: write(SETTLED) :: write(HELD) fi }
#ifdef LOOKUP
	:: atomic { OPENROW && watch == UNSEEN -> watch = LEASE + ABSENT }
	:: atomic { st == DOUBT && pc == IDLING -> knows = knows | (1 << R); pc = ASKED; late = PROOF;
		if :: charged > 0 -> found = true :: charged == 0 || lag > 0 -> found = false fi }
	:: atomic { pc == ASKED ->
#ifdef M_JUDGED_AFTER
		late = PROOF;
#endif
		if
		:: found -> adopt(1)
		:: !found && late && MAY_WRITE(R) -> write(RELEASED)
		:: else
		fi;
		found = false; late = false; rest(R) }
#endif
#ifdef KEYS
#ifdef M_REPLAY_LATE
	:: atomic { st == DOUBT && pc == IDLING && net[R] == FREE ->
#else
	:: atomic { st == DOUBT && pc == IDLING && net[R] == FREE && window > 0 ->
#endif
		claim(R); deadline[R] = TIMEOUT; pc = DIAL }
	CALL(R)
	:: atomic { pc == SAVE ->
		if
		:: answer[R] < REFUSED -> adopt(answer[R])
#if !defined(SUCCESS_ONLY) || defined(M_REFUSAL_CLEARS)
		:: answer[R] == REFUSED && MAY_WRITE(R) -> write(DECLINED)  /* stored under the key: it speaks for every send */
#endif
		:: answer[R] == WRONG && MAY_WRITE(R) -> write(HELD)
		:: else                                                       /* says nothing about the first send */
		fi;
		saved(R); rest(R) }
#endif
	:: atomic { FAULT(pc != IDLING || (watch != UNSEEN && watch > 0)) -> watch = UNSEEN; found = false; late = false; rest(R) }
	od
#undef i
}

/* ---- a person decides what is held or in doubt, by what the page showed ---- */
#define CALM (net[0] != OPEN && net[0] != FLYING && net[0] != UNREAD && net[1] != OPEN && net[1] != FLYING && net[1] != UNREAD \
	&& deadline[0] == 0 && deadline[1] == 0 && lag == 0)
#ifdef M_PERSON_EARLY
#define RIPE true
#else
#ifdef JUMP
#define RIPE (until == 0 && CALM)      /* goes by a watch of their own */
#else
#define RIPE (until == 0)
#endif
#endif
#ifdef M_PERSON_STALE
#define MAY_DECIDE (st == HELD || st == DOUBT)
#else
#define MAY_DECIDE KNOWS(P)
#endif
proctype Person() {
	bool looked, yes;
	do
	:: atomic { !looked && (st == HELD || st == DOUBT) && RIPE -> looked = true; yes = (charged > 0); knows = knows | (1 << P) }
	:: atomic { looked ->
		if
		:: !MAY_DECIDE -> skip                                        /* the row is not the one that was looked at */
		:: MAY_DECIDE && yes -> if :: ref == 0 -> ref = 1 :: else fi; window = 0; write(SETTLED)
		:: MAY_DECIDE && !yes -> write(DECLINED)
		:: FAULT(MAY_DECIDE && !yes); spare = 1; write(RELEASED)
		fi;
		looked = false; yes = false; forget(P) }
	:: atomic { FAULT(failed && q == GONE) -> q = READY; if :: failed = false :: true fi }  /* retry; a crash in between leaves both */
	od
}

/* ---- the provider ---- */
#define COMES(i) (net[i] == FLYING || net[i] == UNREAD)
proctype Provider() {
	byte i, a;
	do
	:: atomic {
		if :: COMES(0) -> i = 0 :: COMES(1) -> i = 1 :: COMES(R) -> i = R fi;
		if
		:: cached > 0 -> a = cachedAnswer
		:: cached == 0 ->
			if
			:: charged < CHARGES || CHARGES == 1 -> charged++; assert(charged <= CHARGES); CHECK_STATE; a = charged; lag = LAG
			:: a = REFUSED
			:: FAULT(true); a = NOTHING
			:: a = WRONG
			:: a = LOST                                           /* 500, and nothing was done */
			fi;
#ifdef KEYS
			if
			:: a < REFUSED -> cached = KEYLIFE; cachedAnswer = a
#ifndef SUCCESS_ONLY
			:: a == REFUSED -> cached = KEYLIFE; cachedAnswer = a
#endif
			:: else
			fi
#endif
		fi;
		if
		:: net[i] == UNREAD -> net[i] = FREE
		:: net[i] == FLYING -> net[i] = ANSWERED; if :: answer[i] = a :: answer[i] = LOST fi
		fi;
		t[i] = 0; i = 0; a = 0 }
	od
}

/* ---- time, the queue's reserve, the database's mishaps ---- */
inline lower(x) { if :: x > 0 && x < FOREVER -> x-- :: else fi }
inline lowerNet(i) {
	if
#ifdef PAUSE           /* no idle limit ends the gap between clock and send */
	:: net[i] == OPEN -> skip
#else
	:: net[i] == OPEN -> t[i]--; if :: t[i] == 0 -> net[i] = FREE :: else fi
#endif
	:: COMES(i) -> t[i]--
	:: else
	fi
}
#define DUE(i) (COMES(i) && t[i] == 0)
#define RUNS(x) (x > 0 && x < FOREVER)
#define SOMETHING_RUNS (RUNS(until) || RUNS(watch) || RUNS(window) || RUNS(lag) || RUNS(cached) \
	|| deadline[0] + deadline[1] + deadline[2] + t[0] + t[1] + t[2] > 0)
proctype Tick() {
	do
	:: atomic { SOMETHING_RUNS && PROMPT && !DUE(0) && !DUE(1) && !DUE(R) -> d_step {
		lower(until); lower(watch); lower(window); lower(lag); lower(cached);
		if :: cached == 0 -> cachedAnswer = 0 :: else fi;
		lower(deadline[0]); lower(deadline[1]); lower(deadline[2]);
		lowerNet(0); lowerNet(1); lowerNet(R) } }
#ifdef LIVE
	:: atomic { !SOMETHING_RUNS -> skip }                             /* time goes on, so that fairness can judge an idle system */
#endif
	od
}
proctype World() {
	do
#ifdef FAULTS          /* where each message must end: only what a dead worker held comes back */
	:: atomic { q > READY && Worker[q - 1]:pc == IDLING -> q = READY }
#else
	:: atomic { q > READY -> q = READY }                              /* at any time: nothing here rests on the reserve */
#endif
#ifdef JUMP
	:: atomic { until > 0 -> until = 0 }                              /* the database's clock jumps ahead */
#endif
#ifdef ROWLOSS
	:: atomic { st != NONE -> st = NONE; knows = 0; until = 0; watch = UNSEEN; spare = 0; window = 0; ref = 0; other = 0 }
#endif
	od
}
init { atomic { run Worker(0); run Worker(1); run Resolver(); run Person(); run Provider(); run Tick(); run World() } }

#ifdef LIVE            /* the message leaves the queue with its row ended, or is in the failure transport; no row stays open */
ltl ends { <> [] (q == GONE && (ENDED || KEPT || failed) && !OPENROW) }
#endif
