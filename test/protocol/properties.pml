/* SPDX-License-Identifier: Apache-2.0 */

/* What must hold. The names are always 0, so that a failed assertion shows its name. I1 to I8 are in docs/explanation/architecture.md. ORDER: no
 * CPU of a claim file is in the shared pool, but while a claim is decided anew and no other CPU is left for the pool: then no pod is
 * listed for the claim. LOCK: the frontend writes with the ledger's lock. ANNOUNCED: the announced generation is applied. STARTS: each
 * pod has started, unless it was deleted. */
hidden byte I1, I2, I3, I5, I8, ORDER, LOCK, ANNOUNCED, STARTS;

inline check() {          /* after each write: at any instant and after any crash */
  for (i : 0 .. CLAIMS-1) {
    for (j : 0 .. CLAIMS-1) { assert(i == j || !IN(i, files) || !IN(j, files) || !(record_cpus[i] & record_cpus[j]) || I1) }
    for (j : 0 .. PODS-1) {
      assert(IN(i, unreadable) || !node || !(record_cpus[i] & pool) || !(pool & ~record_cpus[i]) && !IN(i, listed[j]) || ORDER);
      assert(!IN(i, claims[j]) || phase[j] != running || record_cpus[i] == (env[j] & record_cpus[i]) || I5)
    }
  }
  for (i : 0 .. PODS-1) {
    assert(phase[i] != running || !env[i] || cpus[i] == env[i] || I5);
    assert(phase[i] != running || env[i] || !connected || !applied || IN(i, slipped) || cpus[i] == pool || ANNOUNCED);
    for (j : 0 .. PODS-1) { assert(i == j || phase[i] != running || phase[j] != running || !env[i] || IN(j, slipped) ||
                                   (claims[i] & claims[j]) || !(cpus[i] & cpus[j]) || I1) }
  }
  i = 0
}
inline check_end() {      /* when nothing happens any more */
  for (i : 0 .. PODS-1) { assert(phase[i] == (ENDS(i) -> ended : running) || STARTS); assert(!listed[i] || I3) }
  assert(!files && pool == ALL && cpus[0] == ALL || I3)
}
