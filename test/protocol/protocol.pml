/* SPDX-License-Identifier: Apache-2.0 */

/* The protocol of docs/reference/contract.md. A step is what another program can see: a file operation, a cgroup write, a call. Each daemon
 * may die before each of its steps. Sets of CPUs, pods and claims are bit sets. A program tries again when the try may succeed, and
 * FAULTS bounds what goes wrong: so every run ends, and its end shows what has come back. */
#ifndef HISTORY           /* a history of the lab brings its own bounds: history.go */
#ifndef PODS              /* protocol_test.go has other bounds */
#define PODS 3            /* with one container each; pod 0 has no claim and runs on, so that it shows the pool */
#define FRONTENDS 1       /* instances of a rolling update, or calls of one instance */
#define FAULTS 1          /* deaths, reboots, lost connections, calls given up, pods stopped or deleted */
#endif
#define CLAIMS 2          /* pods can share claim 0; claim 1 is decided anew for its next pod */
#define CPUS 3
#define SET byte
#define JOINABLE(c) (c == 0)
#define ENDS(p) (p > 0)
#define UNSEEN true       /* steps that no history has */
#define SEEN(action, subject, set) skip
#define NEXT(action, subject) true                                /* a history says which step is next */
#define TRIES(when) (when) /* a search leaves out tries that change nothing */
#define READY true
#define WRITES true
#define FAULT faults -> faults--
#define ANY(x, n) x = 0; do :: break :: x < n - 1 -> x++ od
#define CHOOSE_CLAIMS(set) ENDS(p) -> (PODS == 2 || phase[p-1] != absent && phase[0] == running); set = 1 :: ENDS(p) -> set = 2 :: !ENDS(p)
#define CHOOSE_CPUS(set) assert(rest & (rest - 1) || I2); set = (rest & ~record_cpus[c] -> rest & ~record_cpus[c] : rest); set = set & -set
#endif
#define ONE(x) (1 << (x))
#define IN(x, set) (((set) >> (x)) & 1)
#define ALL (ONE(CPUS) - 1)
#define NOBODY 255
#define ACTUATOR (PODS + FRONTENDS)

mtype = { idle, reconcile, prepare, unprepare, join };          /* calls of the frontend */
mtype = { absent, pending, created, made, running, ended };     /* a pod; made: its container has a cgroup and no program */
mtype = { apply, create, start, wait, none, asked, granted, refused }; /* the actuator's work and answer; wait: in the guard */
mtype = { frontendDied, actuatorDied, actuatorStarted, linkLost, kubeletRestarted, scheduled, stopped, removed, prepareCalled, nodeWritten,
          claimWritten, claimRemoved, containerCreated, containerStarted };               /* what a history names */

SET files, unreadable, decided, record_cpus[CLAIMS], record_pods[CLAIMS]; /* claim files; unreadable: of an earlier boot */
bit node, read; SET pool, listed[PODS];                         /* node file: shared pool, each pod's claims; read: by the actuator */
bit connected, applied;                                         /* announcement; applied: it has the node file's generation */
byte lock = NOBODY;                                             /* the ledger's lock: its holder */
SET allocated, consumers[CLAIMS], deleted;                      /* API server; a new allocation changes a claim's bit */
SET users[CLAIMS], known, prepared, joining; mtype call[CLAIMS] = idle; chan calls = [2 * CLAIMS] of { mtype, byte };    /* kubelet */
mtype phase[PODS] = absent, answer[PODS] = none; SET claims[PODS], env[PODS], cpus[PODS]; chan nri = [0] of { mtype, byte };
SET cgroups, configured, slipped; bit linked;                   /* pods with a cgroup, answered, started without the actuator */
byte faults = FAULTS; SET dies; hidden byte i, j;               /* dies: pods, then frontends, then the actuator */

#define SAME(c, allocation) (IN(c, files & ~unreadable) && IN(c, allocation) == IN(c, decided))
#define STANDS(c, allocation, pods) (SAME(c, allocation) && (JOINABLE(c) || (record_pods[c] & (pods))))
#define ENDED(c, pods) (!(record_pods[c] & ~(pods) & cgroups))
#define DECIDABLE(c, pods) (!unreadable && connected && (pods) && ENDED(c, pods))
#define BACKED(p, list) ((claims[p] & ~(files & list[p])) == 0)
#define POOLED(p) ((phase[p] == made || phase[p] == running) && !env[p] && (!claims[p] || phase[p] == running))
#define GUARDED(p) (claims[p] && !IN(p, configured) && (env[p] -> cpus[p] != env[p] : !cpus[p]))
#define ALIVE(p) (phase[p] != absent && phase[p] != ended)

#include "properties.pml"

/* The frontend: dra-frontend/kubelet and dra-frontend/ledger. */
inline load() {           /* what the claim files leave, without claim c: CPUs for the pool, and each pod's claims */
  rest = ALL;
  for (i : 0 .. CLAIMS-1) {
    rest = rest & ~(i != c -> record_cpus[i] : 0);
    for (j : 0 .. PODS-1) { list[j] = list[j] | (i != c && IN(j, record_pods[i])) << i } }; i = 0 }
inline write_node(taken, pods) {
  d_step {
    left = rest & ~(taken); differs = !node || pool != left;
    for (j : 0 .. PODS-1) { differs = differs || listed[j] != (list[j] | IN(j, pods) << c) }; j = 0 }
  if :: differs -> SEEN(nodeWritten, 0, left);
     d_step { for (j : 0 .. PODS-1) { listed[j] = list[j] | IN(j, pods) << c }
       assert(lock == f || LOCK); node = 1; read = 0; applied = 0; pool = left; check() } :: else fi }
inline write_claim(pods) {
  SEEN(claimWritten, c, with);
  d_step { assert(lock == f || LOCK); assert(!(record_pods[c] & cgroups) || record_cpus[c] == with || I8);
    files = files | ONE(c); record_cpus[c] = with; record_pods[c] = pods; decided = (decided & ~ONE(c)) | asks; check() } }
inline forget(c) {
  files = files & ~ONE(c); unreadable = unreadable & files; decided = decided & files; record_cpus[c] = 0; record_pods[c] = 0 }
inline remove_claim(claim) {
  if :: IN(claim, files) -> SEEN(claimRemoved, claim, 0); d_step { assert(lock == f || LOCK); forget(claim); check() } :: else fi }
inline finish(done) {     /* give the lock back and answer */
  d_step { if :: c < CLAIMS && call[c] == op ->
       prepared = prepared | (done && op == prepare) << c; known = known & ~((done && op == unprepare) << c); call[c] = idle :: else fi;
    for (i : 0 .. CLAIMS-1) {
      if :: IN(i, also) && call[i] == unprepare -> known = known & ~(done << i); call[i] = idle :: else fi }; i = 0; also = 0; d = 0;
    joining = joining & ~((op == join) << c); for (j : 0 .. PODS-1) { list[j] = 0 }
    lock = (lock == f -> NOBODY : lock); op = reconcile; c = CLAIMS; own = 0; asks = 0; with = 0; rest = 0; left = 0; differs = 0 } }
proctype Frontend(byte f) {
  mtype op = reconcile; byte c = CLAIMS, d; SET own, asks, with, rest, left, also, list[PODS]; bit differs;
begin: { do :: atomic { lock == NOBODY && READY -> lock = f; d_step { load() };
       if :: op == reconcile && !unreadable -> goto last
       :: op == unprepare && call[c] == op -> remove_claim(c); own = 0; goto more
       :: op == join && own && JOINABLE(c) && SAME(c, asks) && !unreadable ->
          with = record_cpus[c]; own = own | (record_pods[c] & cgroups); write_claim(own); goto last
       :: WRITES && DECIDABLE(c, own) && !STANDS(c, asks, own) && (op == prepare && call[c] == op || op == join && IN(c, files)) ->
          if :: SAME(c, asks) -> with = record_cpus[c] :: else -> CHOOSE_CPUS(with) fi;
          left = (rest & ~with & ~record_cpus[c] -> record_cpus[c] : 0);
          if :: IN(c, files) -> write_node(with | left, 0) :: else -> write_node(with, own) fi
       :: else -> finish(op == prepare && call[c] == op && STANDS(c, asks, own)); goto next fi }
     atomic { write_claim(own); goto last }
more: do :: atomic { calls ?? unprepare, d; /* kubelet names all claims of a pod in one call: one node file for them */
       if :: call[d] == unprepare -> remove_claim(d); also = also | ONE(d); d_step { for (j : 0 .. PODS-1) { list[j] = 0 }; load() }
       :: else fi; d = 0 } :: break od;
last: atomic { if :: !unreadable -> write_node(with, own) :: else fi; finish(1) }
next: atomic { calls ? op, c; if :: c < CLAIMS -> own = consumers[c]; asks = allocated & ONE(c) :: else fi }
  od } unless { atomic { IN(PODS + f, dies) -> dies = dies & ~ONE(PODS + f); finish(0); goto begin } } }

/* The actuator: nri-actuator/nri and nri-actuator/enforce. */
inline look() { d_step { for (i : 0 .. PODS-1) { list[i] = listed[i] }; has = node; read = read || what == apply; free = pool } }
inline reply(verdict) {
  d_step {
    answer[p] = (what != apply && answer[p] == asked -> verdict : answer[p]); for (i : 0 .. PODS-1) { list[i] = 0 }
    what = apply; p = 0; q = 0; want = 0; has = 0; free = 0; i = 0 } }
proctype Actuator() {
  mtype what = apply; byte p, q; SET free, list[PODS], want; bit has;
begin: {
  atomic { NEXT(actuatorStarted, 0) -> SEEN(actuatorStarted, 0, 0); linked = 1; look() }; /* the runtime waits for the answer to its list */
  do :: atomic { /* the claim files are read after the node file */
       d_step { for (i : 0 .. CLAIMS-1) { want = want | (what != apply && IN(i, claims[p]) -> record_cpus[i] : 0) }; i = 0 };
       if /* I5, I1 */
       :: what != apply && claims[p] && (!has || !BACKED(p, list) || env[p] != want || (want & free) && !IN(p, configured)) ->
          reply(refused); goto next :: else fi };
     do :: d_step { q < PODS && (what == apply || want) && has && POOLED(q) -> /* I1: first the pool gives the CPUs up */
          cpus[q] = free; slipped = slipped & ~ONE(q); q++; check() }
     :: d_step { q < PODS && !((what == apply || want) && has && POOLED(q)) -> q++ } :: q == PODS -> break od;
     atomic {
       if :: what == apply -> connected = linked; applied = has && read
       :: what != apply && has && (answer[p] == asked || phase[p] == made) ->
          cpus[p] = (want -> want : free); slipped = slipped & ~ONE(p) :: else fi; reply(granted); d_step { check() } };
next: if :: atomic { !linked && NEXT(actuatorStarted, 0) -> SEEN(actuatorStarted, 0, 0); connected = 0; linked = 1; look() }
     :: atomic { linked && node && !read -> look() } :: atomic { nri ? what, p -> answer[p] = asked; look() } fi
  od } unless { atomic { IN(ACTUATOR, dies) -> dies = dies & ~ONE(ACTUATOR); reply(none); goto begin } } }

/* Kubelet and the runtime. */
inline leave(p) { for (i : 0 .. CLAIMS-1) { users[i] = users[i] & ~ONE(p) }; phase[p] = ended }
inline stop(p) {
  if :: ALIVE(p) && IN(p, deleted) -> leave(p) :: ALIVE(p) && !IN(p, deleted) -> phase[p] = pending :: else fi;
  answer[p] = none; env[p] = 0; cpus[p] = 0 }
proctype Pod(byte p) {
begin: { do :: atomic { phase[p] == absent -> if :: CHOOSE_CLAIMS(claims[p]) fi; SEEN(scheduled, p, claims[p]);
       d_step {
         for (i : 0 .. CLAIMS-1) { users[i] = users[i] | IN(i, claims[p]) << p; consumers[i] = consumers[i] | IN(i, claims[p]) << p };
         phase[p] = pending; cgroups = cgroups | ONE(p) } }
  :: atomic { phase[p] == pending && NEXT(containerCreated, p) && !(claims[p] & ~(prepared & files)) &&
       TRIES(answer[p] != refused || BACKED(p, listed) || !linked) ->
       d_step { env[p] = 0; for (i : 0 .. CLAIMS-1) { env[p] = env[p] | (IN(i, claims[p]) -> record_cpus[i] : 0) }; answer[p] = none };
       if :: linked -> nri ! create, p :: !linked fi }
     atomic { answer[p] != asked -> if
       :: answer[p] == refused -> goto begin
       :: answer[p] == granted -> configured = configured | ONE(p)
       :: answer[p] == none -> configured = configured & ~ONE(p); cpus[p] = (claims[p] -> 0 : ALL)
       fi; answer[p] = none; phase[p] = created; SEEN(containerCreated, p, cpus[p]) }
  :: phase[p] == created -> phase[p] = made
  :: atomic { phase[p] == made && GUARDED(p) && linked && BACKED(p, listed) -> nri ! wait, p }; answer[p] != asked
  :: atomic { phase[p] == made && !GUARDED(p) && NEXT(containerStarted, p) ->
       if :: linked -> nri ! start, p :: !linked -> answer[p] = none fi };
     atomic { answer[p] != asked -> if
       :: answer[p] == refused -> phase[p] = pending
       :: else -> slipped = slipped | (answer[p] == none && !env[p]) << p; answer[p] = none; SEEN(containerStarted, p, cpus[p]);
          d_step { phase[p] = running; check() } fi }
  :: d_step { UNSEEN && phase[p] == running && ENDS(p) ->
       stop(p); leave(p); configured = configured & ~ONE(p); slipped = slipped & ~ONE(p) }
  :: d_step { UNSEEN && phase[p] == running && claims[p] && !IN(p, deleted) -> /* by force; its claim gets a new allocation */
       for (i : 0 .. CLAIMS-1) { consumers[i] = consumers[i] & ~ONE(p); allocated = allocated ^ (IN(i, claims[p]) && !consumers[i]) << i };
       deleted = deleted | ONE(p) }
  :: d_step { phase[p] == ended && IN(p, cgroups) -> cgroups = cgroups & ~ONE(p) }
  od } unless { atomic { IN(p, dies) -> dies = dies & ~ONE(p); goto begin } } }
proctype Kubelet(byte c) { /* and the frontend's watch of the claim */
  do :: atomic { users[c] && call[c] == idle && NEXT(prepareCalled, c) &&
       TRIES(!IN(c, prepared) && (STANDS(c, allocated, consumers[c]) || DECIDABLE(c, consumers[c]))) ->
       SEEN(prepareCalled, c, 0); call[c] = prepare; known = known | ONE(c); calls ! prepare, c }
  :: atomic { !users[c] && IN(c, known) && call[c] == idle -> prepared = prepared & ~ONE(c); call[c] = unprepare; calls ! unprepare, c }
  :: atomic { UNSEEN && IN(c, unreadable) -> d_step { forget(c) }; calls ! reconcile, CLAIMS } /* an administrator */
  :: d_step { (consumers[c] & ~users[c]) && (users[c] || !IN(c, known)) -> consumers[c] = consumers[c] & users[c] }
  :: atomic { IN(c, files) && (consumers[c] & ~record_pods[c]) && !IN(c, joining) && !unreadable &&
       (JOINABLE(c) && SAME(c, allocated) || !STANDS(c, allocated, consumers[c]) && DECIDABLE(c, consumers[c])) ->
       joining = joining | ONE(c); calls ! join, c }
  od }
inline disconnect() { for (i : 0 .. PODS-1) { answer[i] = (answer[i] == asked -> none : answer[i]) }; linked = 0 }
proctype Faults() { byte x;
  do :: UNSEEN && faults -> faults = 0
  :: atomic { FAULT;
       if :: NEXT(frontendDied, 0) -> ANY(x, FRONTENDS); SEEN(frontendDied, 0, 0); dies = dies | ONE(PODS + x)
#if PODS == 2 || defined(HISTORY) /* a third pod leaves time for the frontend's deaths only */
       :: NEXT(kubeletRestarted, 0) -> SEEN(kubeletRestarted, 0, 0); d_step { for (i : 0 .. CLAIMS-1) { call[i] = idle }; prepared = 0 }
       :: NEXT(stopped, any) -> ANY(x, PODS); ALIVE(x) && phase[x] != pending -> SEEN(stopped, x, 0);
          d_step { stop(x); dies = dies | ONE(x) }
       :: NEXT(removed, any) -> ANY(x, PODS); phase[x] == pending && ENDS(x) -> SEEN(removed, x, 0);
          d_step { leave(x); answer[x] = none; dies = dies | ONE(x) }
       :: NEXT(actuatorDied, 0) -> SEEN(actuatorDied, 0, 0); d_step { disconnect(); connected = 0; dies = dies | ONE(ACTUATOR) }
       :: NEXT(linkLost, 0) && linked -> SEEN(linkLost, 0, 0); d_step { disconnect() }
       :: UNSEEN -> d_step { /* a reboot */
            for (i : 0 .. CLAIMS-1) { call[i] = idle } for (x : 0 .. PODS-1) { stop(x) };
            disconnect(); connected = 0; dies = ONE(ACTUATOR + 1) - 1; prepared = 0; slipped = 0; configured = 0 };
          if :: unreadable = files
          :: d_step { for (i : 0 .. CLAIMS-1) { forget(i) } for (j : 0 .. PODS-1) { listed[j] = 0 };
               node = 0; read = 0; applied = 0; pool = 0 } fi
#endif
       fi; x = 0 }
  od }
init { byte x; atomic {
    for (x : 0 .. PODS-1) { run Pod(x) } for (x : 0 .. CLAIMS-1) { run Kubelet(x) } for (x : 0 .. FRONTENDS-1) { run Frontend(x) }
    run Actuator(); run Faults(); x = 0 }
  UNSEEN && timeout -> d_step { check_end() } }
