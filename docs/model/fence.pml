/* The fence for one order, for the model checker SPIN. README.md says how to run it and what the defines mean.
 *
 * Every actor is a loop over guarded atomic actions. So between any two of them every other actor may act, time may
 * pass (SIGSTOP, a paused machine) and the actor may be killed (SIGKILL). Kills, redeliveries, retries from the
 * failure transport, look-ups and decisions are not limited in number. The claim is kept as «who knows the row's
 * latest claim», the id of the latest send as «who made it», and unproven sends as two bits. So the states are finite.
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
#ifndef KEYS
#define WINDOW  0
#endif
#ifndef WINDOW
#define WINDOW  3      /* a replay may start so long after the first capture */
#endif
#ifndef KEYLIFE
#define KEYLIFE 5      /* the provider knows a key for so long after it ran the request; 4 is too little, 255 for ever */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef CHARGES
#define CHARGES 1      /* more than one only to see that a second charge is not hidden */
#endif
#define FOREVER 255

mtype:state = { NONE, CAPTURED, SETTLED, PENDING, DECLINED, RELEASED, DOUBT, HELD };
mtype:net   = { FREE, OPEN, FLYING, UNREAD, ANSWERED };           /* UNREAD: flying, and nobody waits for the answer */
mtype:step  = { IDLING, INSERT, DIAL, SEND, WAIT, SAVE, ACK, PARK, REMOVE, ASKED };

/* What a call may come to; below REFUSED it is a reference. */
#define FOREIGN 9      /* the reference of another order */
#define REFUSED 10     /* a definite no */
#define NOTHING 11     /* 429 and its like; or the own clock said «too late», and not a byte left */
#define WRONG   12     /* 404 and its like */
#define LOST    13     /* anything else: 500, a cut answer, the time is up */

/* The actors. */
#define R 2            /* the resolver; 0 and 1 are the workers */
#define P 3            /* the person */
#define NOBODY 3       /* waits for the answer of a row's latest send */

/* ---- the row; one for each key that the order has under a key schema ---- */
#ifdef SCHEMAS
#define ROWS 2         /* each actor has the key schema that it works by in «schema» */
#else
#define ROWS 1
#define schema 0
#endif
mtype:state stOf[ROWS] = NONE;
byte knowsOf[ROWS];    /* one bit for each actor that knows the latest claim: every write gives the row a new one */
byte untilOf[ROWS];    /* countdown to send_until + absent_after in the database's clock */
byte watchOf[ROWS];    /* what is still missing of the lease and absent_after, by the stored watched time */
byte windowOf[ROWS];   /* for replays */
byte triesOf[ROWS];    /* ATTEMPTS + 1 stands for any larger number */
byte refOf[ROWS], otherOf[ROWS];
byte senderOf[ROWS] = NOBODY;   /* the actor that made the latest send and waits for its answer: the id of a send */
bool latestOf[ROWS], earlierOf[ROWS]; /* unproven: the latest send may have acted; a send before it may have */
bool personOf[ROWS];   /* the cause: a person, or a conflict that only a person decides */
bool seenOf[ROWS];     /* the resolver has the row's look-up lease, and has seen the latest send */
bool parkedOf[ROWS];   /* the note: the message is in the failure transport */
bool missingOf[ROWS];  /* inserted for a message that was delivered before */
#define st      stOf[schema]
#define knows   knowsOf[schema]
#define until   untilOf[schema]
#define watch   watchOf[schema]
#define window  windowOf[schema]
#define tries   triesOf[schema]
#define ref     refOf[schema]
#define other   otherOf[schema]
#define sender  senderOf[schema]
#define latest  latestOf[schema]
#define earlier earlierOf[schema]
#define person  personOf[schema]
#define seen    seenOf[schema]
#define parked  parkedOf[schema]
#define missing missingOf[schema]

#define KNOWS(a)   ((knows >> (a)) & 1)
#define UNPROVEN   (latest || earlier)
#define LEASE_OVER (until <= ABSENT)
#define ENDED      (st == SETTLED || st == DECLINED || st == PENDING)
#define OPENROW    (st == CAPTURED || st == DOUBT)
#define KEPT       (ref > 0)                 /* a pending row that was held since keeps its reference */
#if defined(ROWLOSS) || defined(GENERATIONS)
#define LOSES true                        /* only the charges are counted where rows are lost, or a declined one is released */
#else
#define LOSES false
#endif
#if defined(ROWLOSS) || defined(SCHEMAS)
#define SIGN           /* whether a message was delivered before matters, because it may have no row */
bool before;
#endif

/* The queue has one message, the failure transport a copy of it or none. */
byte q = 1;            /* 0: removed, 1: ready, 2 + i: reserved by worker i */
bool failed;
#define GONE    0
#define READY   1
#define BY(i)   (2 + i)

/* One connection for each caller; t is its idle limit, then the time to reach the provider. */
mtype:net net[3] = FREE;
byte t[3], deadline[3], answer[3];

/* The provider; it keeps what it did by the provider key. */
#ifdef GENERATIONS
bool generation;
#define KEY  generation
#else
#define KEY  schema
#endif
#if defined(GENERATIONS) || defined(SCHEMAS)
#define KEYS_OF_ORDER 2
byte keyOf[3], nextKey[3];  /* the key of each caller's request under way, and of the one that it begins */
#define KEYOF(i) keyOf[i]
#else
#define KEYS_OF_ORDER 1
#define KEYOF(i) 0
#endif
byte charged, lag, cached[KEYS_OF_ORDER], cachedAnswer[KEYS_OF_ORDER];
bool chargedBy[KEYS_OF_ORDER];

#ifdef SCHEMAS         /* the key schema in force */
byte inForce;
bool changed;          /* it is not the first */
bool stale[ROWS];      /* the row was last written before the latest change */
#endif
#ifdef OTHER           /* which of two requests the message asks for, the row is for, each caller sends, was charged */
bool wanted, request, nextRequest[3], requestOf[3], chargedFor;
#endif
#ifdef TWO
bool seenByOther;      /* another resolver has the look-up lease */
#endif
#ifdef COUNT
byte credit = ATTEMPTS;/* calls that are still allowed by tries, releases and entries of the failure transport */
inline more() { if :: credit < ATTEMPTS + 2 -> credit++ :: else fi }
#else
#define more() skip
#endif
#ifdef FAULTS          /* budgets of the lines that need some */
byte faults = FAULTS;
#define FAULT(p) (faults > 0 && (p)) -> faults--
#define CALLS(w) (Worker[w]:pc == DIAL || (Worker[w]:pc == INSERT && (st == NONE || (st == RELEASED && !SPENT))))
#define PROMPT   (!CALLS(1) && !CALLS(2))
#else
#define FAULT(p) (p)
#define PROMPT true
#endif

#if defined(CHARGE_ONLY) || defined(SCHEMAS) /* a row of another key says nothing about the order */
#define CHECK_STATE
#else                  /* RELEASED and DECLINED say that no money moved: looked at whenever either side changes */
#define CHECK_STATE assert(charged == 0 || (st != RELEASED && st != DECLINED))
#endif

/* ---- writes of the row: each is one committed statement that names the claim it follows ---- */
#ifdef SCHEMAS
#define written stale[schema] = false
#else
#define written skip
#endif
inline write(s) { st = s; knows = 0; written; CHECK_STATE }
inline machine(s) { person = false; write(s) }
inline begin(a) {      /* a send begins: a capture or a replay */
	knows = 1 << a; until = LEASE + ABSENT; written;
	earlier = earlier || latest; latest = true; sender = a;
#ifndef M_WATCH_SEND
	watch = LEASE + ABSENT; seen = false;
#endif
#ifdef TWO
	seenByOther = false;
#endif
#if KEYS_OF_ORDER > 1
	nextKey[a] = KEY;
#endif
#ifdef OTHER
	nextRequest[a] = request
#endif
}
inline capture(a) {
#ifdef OTHER
	request = wanted;
#endif
	if :: st == NONE -> watch = LEASE + ABSENT :: else fi;
	if :: !UNPROVEN -> window = WINDOW :: else fi;
#ifdef COUNT
	assert(credit > 0); credit--;
#endif
	st = CAPTURED; person = false; missing = false;
	if :: tries <= ATTEMPTS -> tries++ :: else fi;
#ifndef M_NOTE_STAYS
	parked = false;
#endif
	begin(a)
}
inline forget(a) { knows = knows & (15 - (1 << a)); if :: sender == a -> sender = NOBODY :: else fi }

/* A reference is saved in every state, whatever the claim is by now, and also where the row is gone. */
inline adopt(k) {
	if
#ifdef M_LATE_200
	:: !KNOWS(i) -> skip
	:: KNOWS(i) ->
#else
	:: true ->
#endif
		if :: st == NONE -> latest = true :: else fi;                   /* written again as it was sent */
		if
		:: ref == 0 -> ref = k
#ifndef M_SECOND_DROPPED
		:: ref != 0 && ref != k -> other = k                        /* critical alert */
#endif
		:: else
		fi;
		if
		:: st == SETTLED || st == PENDING
#if defined(SHARED) && !defined(M_SHARED)
		:: st != SETTLED && st != PENDING && k == FOREIGN -> st = HELD; person = true; knows = 0
		:: st != SETTLED && st != PENDING && k != FOREIGN ->
#else
		:: st != SETTLED && st != PENDING ->
#endif
			if :: st = SETTLED :: st = PENDING fi;
#ifdef SHARED
			assert(charged > 0);                                    /* paid */
#endif
#ifdef OTHER
			assert(request == chargedFor);
#endif
			person = false; knows = 0; written;
			until = 0; watch = 0; window = 0                        /* these mean nothing any more */
		fi
	fi
}

/* An answer without a reference decides while no later send was made, the row has none, and no person has spoken. */
#ifdef M_SEND_IGNORED
#define MAY_WRITE(a) (OPENROW || (st == HELD && !person))
#else
#define MAY_WRITE(a) (sender == a && (OPENROW || (st == HELD && !person && ref == 0)))
#endif

/* ---- the call, the same for a worker and for the resolver's replay ---- */
#ifdef M_NO_DEADLINE
#define IN_TIME(i) true
#else
#define IN_TIME(i) (deadline[i] > 0)
#endif
#if KEYS_OF_ORDER > 1
#define ADDRESS(i) keyOf[i] = nextKey[i]
#else
#ifdef OTHER
#define ADDRESS(i) requestOf[i] = nextRequest[i]
#else
#define ADDRESS(i) skip
#endif
#endif
#define CALL(i) \
	:: atomic { pc == DIAL && net[i] == FREE && IN_TIME(i) -> net[i] = OPEN; t[i] = IDLE; ADDRESS(i); pc = SEND } \
	:: atomic { pc == DIAL && !IN_TIME(i) -> answer[i] = NOTHING; CALL_ENDS(i) } \
	:: atomic { pc == SEND && net[i] == OPEN -> net[i] = FLYING; t[i] = LATE; pc = WAIT } \
	:: atomic { pc == SEND && net[i] == FREE -> answer[i] = LOST; CALL_ENDS(i) } \
	:: atomic { pc == WAIT && net[i] == ANSWERED -> net[i] = FREE; CALL_ENDS(i) } \
	:: atomic { pc == WAIT && deadline[i] == 0 -> hangUp(i); answer[i] = LOST; CALL_ENDS(i) }
inline hangUp(i) {
	if
	:: net[i] == FLYING -> net[i] = UNREAD
	:: net[i] == OPEN || net[i] == ANSWERED -> net[i] = FREE; t[i] = 0
	:: else
	fi
}
inline rest(i) { hangUp(i); forget(i); answer[i] = 0; deadline[i] = 0; pc = IDLING }

inline restWorker(i) { /* what a worker at rest still had in its head would only be more states */
	rest(i);
#ifdef SIGN
	again = false; inserted = false; overslept = false;
#endif
#ifdef SCHEMAS
	schema = 0
#endif
}

/* A worker that lives and has read a 200 leaves no row without it. A new key begins without one. */
#if defined(SIGN) || defined(GENERATIONS)
#define saved(i) skip
#else
inline saved(i) { assert(answer[i] == 0 || answer[i] >= REFUSED || ref == answer[i] || other == answer[i]) }
#endif
inline later(i) {
	saved(i);
	if
	:: q == BY(i) -> q = READY
#ifdef M_PUT_BACK
		; before = false
#endif
	:: else
	fi;
	restWorker(i)
}

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

/* The tries are used up, and neither a person's release nor a parked message that comes again allows one more. */
#define SPENT (tries >= ATTEMPTS && !person && !parked)
#ifdef SCHEMAS
#define STALE (stale[schema] && !person)
#else
#define STALE false
#endif
#if defined(OTHER) && !defined(M_ANY_REQUEST)
#define UNWANTED (UNPROVEN && wanted != request)
#else
#define UNWANTED false
#endif
#define FREE_ROW (st == RELEASED && !SPENT && !STALE && !UNWANTED)

#ifdef SIGN
#define FIRST (!again)
#define CALL_ENDS(i) overslept = (inserted && q != BY(i)); pc = SAVE
#ifdef M_OVERSLEPT
#define OVERSLEPT false
#else
#define OVERSLEPT overslept
#endif
#else
#define FIRST true
#define CALL_ENDS(i) pc = SAVE
#define OVERSLEPT false
#endif
#if defined(SCHEMAS) && !defined(M_SCHEMA_DOUBT)
#define MISSING(a) if :: changed -> machine(HELD) :: else -> machine(DOUBT) fi
#else
#define MISSING(a) machine(DOUBT)
#endif

proctype Worker(byte i) {
	mtype:step pc = IDLING;
#ifdef SCHEMAS
	byte schema;
#endif
#ifdef SIGN
	bool again, inserted, overslept;
#endif
	do
	:: atomic { pc == IDLING && q == READY -> q = BY(i); deadline[i] = TIMEOUT; pc = INSERT;
#ifdef M_ACK_FIRST
		q = GONE;
#endif
#ifdef SCHEMAS
		schema = inForce;
#endif
#ifdef SIGN
#ifndef M_MISSING_ROW
		again = before;
#endif
		before = true; inserted = false; overslept = false
#endif
		}

	/* Insert first, look second. */
	:: atomic { pc == INSERT && ((st == NONE && FIRST) || FREE_ROW) ->
#ifdef SIGN
		inserted = (st == NONE);
#endif
#ifdef M_CALL_FIRST
		pc = DIAL
#else
		if
		:: capture(i); pc = DIAL
#ifndef FEW
		:: FAULT(true); if :: capture(i) :: true fi;              /* the answer to the commit is lost */
#ifdef M_COMMIT_ASSUMED
			pc = DIAL
#else
			if :: true :: later(i) fi                         /* the same insert again, or give up */
#endif
#endif
		fi
#endif
		}
#ifdef SIGN
	:: atomic { pc == INSERT && st == NONE && !FIRST -> capture(i); sender = NOBODY; missing = true; MISSING(i); later(i) }
#endif
	:: atomic { pc == INSERT && st == CAPTURED && KNOWS(i) -> pc = DIAL }    /* the own claim */
	:: atomic { pc == INSERT && st == CAPTURED && !KNOWS(i) ->
		if :: LEASE_OVER -> machine(DOUBT) :: else fi; later(i) }
	:: atomic { pc == INSERT && (st == DOUBT || ENDED || st == HELD) -> byRow() }
	:: atomic { pc == INSERT && st == RELEASED && (STALE || UNWANTED) -> machine(HELD); pc = PARK }
	:: atomic { pc == INSERT && st == RELEASED && !STALE && !UNWANTED && SPENT -> pc = PARK }

	CALL(i)

	:: atomic { pc == SAVE ->
		if
		:: answer[i] < REFUSED -> adopt(answer[i])
#ifdef M_VANISHED      /* any outcome is written where the row is gone, not a reference alone */
		:: answer[i] >= REFUSED && !MAY_WRITE(i) && st != NONE -> skip
		:: answer[i] == NOTHING && st == NONE && !OVERSLEPT -> tries = 0; latest = false; machine(RELEASED)
		:: answer[i] >= REFUSED && st == NONE && (answer[i] != NOTHING || OVERSLEPT) -> skip
#else
		:: answer[i] >= REFUSED && !MAY_WRITE(i) -> skip             /* a note beside the row */
#endif
		:: answer[i] == REFUSED && MAY_WRITE(i) -> latest = false;
#ifndef SUCCESS_ONLY
			earlier = false;
#endif
			machine(DECLINED)
		:: answer[i] == NOTHING && MAY_WRITE(i) && !OVERSLEPT ->
			more(); if :: tries > 0 -> tries-- :: else fi; latest = false; machine(RELEASED)
		:: answer[i] == NOTHING && MAY_WRITE(i) && OVERSLEPT -> missing = true; machine(DOUBT)
		:: answer[i] == WRONG && MAY_WRITE(i) -> machine(HELD)
		:: answer[i] == LOST && MAY_WRITE(i) -> if :: st == CAPTURED -> machine(DOUBT) :: else fi
		fi;
		byRow() }

	:: atomic { pc == ACK -> assert(ENDED || KEPT || LOSES); saved(i); q = GONE; restWorker(i) }
	:: atomic { pc == PARK -> failed = true; pc = REMOVE }
	:: atomic { pc == REMOVE -> saved(i);                                 /* notes the parking beside the row, then acks */
		if :: st != NONE && !parked -> parked = true; more() :: else fi;
		if :: q == BY(i) -> q = GONE :: else fi; restWorker(i) }

	:: atomic { FAULT(pc != IDLING) -> restWorker(i) }                      /* SIGKILL */
	od
}

/* ---- the resolver works from the row alone ---- */
#undef CALL_ENDS
#define CALL_ENDS(i) pc = SAVE
#ifdef M_ABSENT_AT_ONCE
#define PROOF true
#else
#ifdef M_DATABASE_CLOCK
#define PROOF (until == 0)
#else
#define PROOF (watch == 0)
#endif
#endif
#ifdef SCHEMAS
#define OF_TODAY (schema == inForce && !stale[schema])   /* nothing is sent again that was sent before a change */
#else
#define OF_TODAY true
#endif
proctype Resolver() {
	mtype:step pc = IDLING;
#ifdef SCHEMAS
	byte schema;
#endif
	bool found, late;
#define i R
	do
#ifdef SCHEMAS
	:: atomic { pc == IDLING && (stOf[1 - schema] == CAPTURED || stOf[1 - schema] == DOUBT || stOf[1 - schema] == PENDING) -> schema = 1 - schema }
#endif
	:: atomic { st == CAPTURED && (LEASE_OVER || watch <= ABSENT) -> machine(DOUBT) }
	:: atomic { st == DOUBT && until == 0 && watch == 0 && pc == IDLING -> machine(HELD) }   /* hold_after, by both clocks */
	:: atomic { st == PENDING && pc == IDLING -> if :: machine(SETTLED) :: machine(HELD) fi }
	:: atomic { OPENROW && !seen && watch > 0 -> seen = true;
#ifdef M_WATCH_GAP     /* the time between two holders counts, by the database's clock */
		if :: until < watch -> watch = until :: else fi;
#endif
#if defined(TWO) && !defined(M_WATCH_OVERLAP)
		seenByOther = false
#endif
		}
#ifdef LOOKUP
	:: atomic { st == DOUBT && pc == IDLING -> knows = knows | (1 << R); pc = ASKED; late = PROOF;
		if
		:: chargedBy[KEY] -> found = true
		:: !chargedBy[KEY] || lag > 0 -> found = false
#ifdef WRONGLY         /* the look-up is wrong, and the sample that it asks for tells */
		:: found = false;
			if
			:: true                                               /* wrong credentials: no sample is found */
#ifndef M_NO_SAMPLE
				-> late = false
#endif
			:: true                                               /* another account than the row's has samples of its own */
#ifndef M_OTHER_ACCOUNT
				-> late = false
#endif
			:: true                                               /* the index stopped: it has older samples, and not the newer one */
#if !defined(M_OLDER_SAMPLE) && !defined(NO_NEWER)
				-> late = false
#endif
			fi
#endif
		fi }
	:: atomic { pc == ASKED ->
#ifdef M_JUDGED_AFTER
		late = PROOF;
#endif
		if
		:: found -> adopt(1)
		:: !found && late && KNOWS(R) -> machine(RELEASED)
		:: else
		fi;
		found = false; late = false; rest(R) }
#endif
#ifdef KEYS
	:: atomic { st == DOUBT && pc == IDLING && net[R] == FREE && !missing && OF_TODAY &&
#ifndef M_REPLAY_LATE
		window > 0 &&
#endif
		LEASE_OVER && watch <= ABSENT -> begin(R); deadline[R] = TIMEOUT; pc = DIAL }
	CALL(R)
	:: atomic { pc == SAVE ->
		if
		:: answer[R] < REFUSED -> adopt(answer[R])
#if !defined(SUCCESS_ONLY) || defined(M_REFUSAL_CLEARS)
		:: answer[R] == REFUSED && MAY_WRITE(R) -> latest = false; earlier = false; machine(DECLINED) /* stored: it speaks for every send */
#endif
		:: answer[R] == NOTHING && MAY_WRITE(R) -> latest = false        /* says nothing about the send before it */
		:: answer[R] == WRONG && MAY_WRITE(R) -> machine(HELD)
		:: else
		fi;
		saved(R); rest(R) }
#endif
	:: atomic { FAULT(pc != IDLING || seen) -> seen = false; found = false; late = false; rest(R) }
	od
#undef i
}

/* ---- a person decides by what the page showed ---- */
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
#ifdef FEW
#define LOOKS_AT_RELEASED false
#else
#define LOOKS_AT_RELEASED (st == RELEASED)
#endif
proctype Person() {
	bool looked, yes, proof;
#ifdef SCHEMAS
	byte schema;
#endif
	do
#ifndef NODECISION
#ifdef SCHEMAS
	:: atomic { !looked && (stOf[1 - schema] == HELD || stOf[1 - schema] == DOUBT) -> schema = 1 - schema }
#endif
	:: atomic { !looked && (st == HELD || st == DOUBT || LOOKS_AT_RELEASED) -> looked = true; knows = knows | (1 << P);
		if
		:: yes = (charged > 0 && UNPROVEN); proof = (!UNPROVEN || RIPE)  /* a row without an unproven send needs no look */
#ifdef ERRS
		:: yes = false; proof = true                                  /* looked too early, or at the wrong account */
#endif
		fi }
	:: atomic { looked ->
#ifdef M_PERSON_JUDGED_AFTER
		proof = proof || RIPE;
#endif
		if
		:: !MAY_DECIDE -> skip                                        /* the row is not the one that was looked at */
		:: MAY_DECIDE && yes -> if :: ref == 0 -> ref = 1 :: else fi; window = 0; person = true; write(SETTLED)
#ifdef M_DECLINE_UNASKED
		:: MAY_DECIDE && !yes -> person = true; write(DECLINED)
#else
		:: MAY_DECIDE && !yes && proof -> person = true; write(DECLINED)
#endif
		:: FAULT(MAY_DECIDE && !yes && proof && st != RELEASED && ref == 0); person = true; more(); write(RELEASED)
#ifdef FEW
		:: else -> skip
#else
		:: MAY_DECIDE && !yes && !proof && st != DOUBT -> skip
		:: MAY_DECIDE && st == DOUBT -> person = true; write(HELD)     /* a stop needs no proof */
#endif
		fi;
		looked = false; yes = false; proof = false; forget(P) }
#endif
#ifdef GENERATIONS     /* a new attempt is wanted of a declined row: its message is sent once more */
	:: atomic { !looked && st == DECLINED && !generation && q == GONE -> q = READY;
#ifdef M_PERSON_NEW_KEY
		if :: !UNPROVEN || person
#else
		if :: !person && !UNPROVEN
#endif
			-> generation = true; ref = 0; earlier = false; latest = false
		:: else
		fi;
		person = true; more(); write(RELEASED) }
#endif
	:: atomic { FAULT(failed && q == GONE) -> q = READY; if :: failed = false :: true fi;  /* retry; a crash in between leaves both */
#ifdef M_RETRY_NEW
		before = false
#endif
		}
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
		:: cached[KEYOF(i)] > 0 -> a = cachedAnswer[KEYOF(i)]
		:: cached[KEYOF(i)] == 0 ->
			if
			:: charged < CHARGES || CHARGES == 1 -> charged++; assert(charged <= CHARGES); CHECK_STATE; a = charged; lag = LAG;
				chargedBy[KEYOF(i)] = true;
#ifdef OTHER
				chargedFor = requestOf[i]
#endif
			:: FAULT(true); a = NOTHING
#ifndef FEW
			:: a = REFUSED
			:: a = WRONG
#endif
			:: a = LOST                                           /* 500, and nothing was done */
#ifdef SHARED
			:: a = FOREIGN                                        /* its own check for duplicates answers with another order's */
#endif
			fi;
#ifdef KEYS
			if
			:: a < REFUSED -> cached[KEYOF(i)] = KEYLIFE; cachedAnswer[KEYOF(i)] = a
#ifndef SUCCESS_ONLY
			:: a == REFUSED -> cached[KEYOF(i)] = KEYLIFE; cachedAnswer[KEYOF(i)] = a
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
inline lowerRow(s) {
	lower(untilOf[s]); lower(windowOf[s]);
	if :: seenOf[s] -> lower(watchOf[s]) :: else fi;                  /* only the holder of the look-up lease counts */
	if :: watchOf[s] == 0 -> seenOf[s] = false :: else fi
}
inline lowerKey(n) { lower(cached[n]); if :: cached[n] == 0 -> cachedAnswer[n] = 0 :: else fi }
#define DUE(i) (COMES(i) && t[i] == 0)
#define RUNS(x) (x > 0 && x < FOREVER)
#define ROW_RUNS(s) (RUNS(untilOf[s]) || RUNS(windowOf[s]) || (seenOf[s] && RUNS(watchOf[s])))
#if ROWS > 1
#define ROWS_RUN (ROW_RUNS(0) || ROW_RUNS(1))
#else
#define ROWS_RUN ROW_RUNS(0)
#endif
#if KEYS_OF_ORDER > 1
#define KEYS_RUN (RUNS(cached[0]) || RUNS(cached[1]))
#else
#define KEYS_RUN RUNS(cached[0])
#endif
#ifdef TWO
#define OTHERS_RUN seenByOther
#else
#define OTHERS_RUN false
#endif
#define SOMETHING_RUNS (ROWS_RUN || KEYS_RUN || OTHERS_RUN || RUNS(lag) \
	|| deadline[0] + deadline[1] + deadline[2] + t[0] + t[1] + t[2] > 0)
proctype Tick() {
	do
	:: atomic { SOMETHING_RUNS && PROMPT && !DUE(0) && !DUE(1) && !DUE(R) -> d_step {
#ifdef TWO
		if :: seenByOther -> lower(watchOf[0]); if :: watchOf[0] == 0 -> seenByOther = false :: else fi :: else fi;
#endif
		lowerRow(0);
#if ROWS > 1
		lowerRow(1);
#endif
		lowerKey(0);
#if KEYS_OF_ORDER > 1
		lowerKey(1);
#endif
		lower(lag);
		lower(deadline[0]); lower(deadline[1]); lower(deadline[2]);
		lowerNet(0); lowerNet(1); lowerNet(R) } }
#ifdef LIVE
	:: atomic { !SOMETHING_RUNS -> skip }                             /* time goes on, so that fairness can judge an idle system */
#endif
	od
}
#ifdef M_SCHEMA_BACK   /* a schema that was accepted once is taken without a look */
#define IS_CHANGE (inForce == 0)
#else
#ifdef M_SCHEMA_ENDED  /* only open rows are counted */
#define IS_CHANGE (changed || stOf[inForce] == CAPTURED || stOf[inForce] == DOUBT || stOf[inForce] == RELEASED || stOf[inForce] == HELD)
#else
#ifdef M_SCHEMA_BLIND  /* defaults and enums are not compared */
#define IS_CHANGE false
#else
#define IS_CHANGE true
#endif
#endif
#endif
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
	:: atomic { st != NONE -> st = NONE; knows = 0; until = 0; watch = 0; window = 0; tries = 0; ref = 0; other = 0;
		sender = NOBODY; latest = false; earlier = false; person = false; seen = false; parked = false; missing = false }
#endif
#ifdef TWO             /* another resolver takes the look-up lease, or dies */
	:: atomic { OPENROW && !seenByOther && watch > 0 -> seenByOther = true;
#ifndef M_WATCH_OVERLAP
		seen = false
#endif
		}
	:: atomic { seenByOther -> seenByOther = false }
#endif
#ifdef OTHER
	:: atomic { wanted = !wanted }
#endif
#ifdef SCHEMAS         /* each process has drained, or is too late to send */
	:: atomic { deadline[0] == 0 && deadline[1] == 0 -> changed = (IS_CHANGE); inForce = 1 - inForce;
		stale[0] = (stOf[0] != NONE); stale[1] = (stOf[1] != NONE) }
#endif
	od
}
#ifdef ONE             /* one worker, which may be killed */
#define WORKERS run Worker(0)
#else
#define WORKERS run Worker(0); run Worker(1)
#endif
init { atomic { WORKERS; run Resolver(); run Person(); run Provider(); run Tick(); run World() } }

#ifdef LIVE            /* the message leaves the queue with its row ended, or is in the failure transport; no row stays open */
ltl ends { <> [] (q == GONE && (ENDED || KEPT || failed) && !OPENROW) }
#endif
