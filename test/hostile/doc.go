// Package hostile checks that malicious clients do not harm others. It sends over raw connections
// what no library sends, to both ports, while an honest client works and a worker keeps its lease.
// Then it checks that nothing of the attacks is left in the coordinator.
package hostile
