package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// narrator runs the commands of a transcript and prints their results. Names stand for ids: "t1" is
// a task, "t1/2" is the lease of its second attempt. A grant with "as=old" gives the lease the name
// "old" instead.
type narrator struct {
	t         *testing.T
	rules     *lease.Rules
	store     *memory
	saved     *memory // the copy that the command backup made
	now       lease.Now
	tasks     map[string]lease.TaskID
	leases    map[string]string // lease ids by name
	lastJudge lease.Judge       // the last report, which the command replay sends again
	out       strings.Builder
}

// firstDay is the wall time at which transcripts and simulations begin.
var firstDay = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

func newNarrator(t *testing.T) *narrator {
	draws := uint64(0)
	return &narrator{
		t: t,
		rules: &lease.Rules{
			Authority: lease.NewAuthority(1, []byte("secret")), Limits: lease.DefaultLimits(), AckWithin: lease.DefaultAckWithin,
			// The middle of the range gives a backoff without jitter; the low bits make the nonces
			// differ.
			Entropy: func() uint64 { draws++; return 1<<63 + draws },
		},
		store:  newMemory(),
		now:    lease.Now{Serving: lease.Instant(time.Hour), Wall: lease.WallOf(firstDay)},
		tasks:  map[string]lease.TaskID{},
		leases: map[string]string{},
	}
}

// words are the arguments of a command: names, in order, and options of the form key=value.
type words struct {
	names   []string
	options map[string]string
}

func parseWords(fields []string) words {
	w := words{options: map[string]string{}}
	for _, f := range fields {
		if key, value, ok := strings.Cut(f, "="); ok {
			w.options[key] = value
		} else {
			w.names = append(w.names, f)
		}
	}
	return w
}

// text returns an option with its underscores replaced by spaces: an option of a transcript cannot
// have spaces.
func (w words) text(option string) string { return strings.ReplaceAll(w.options[option], "_", " ") }

// run executes one line of a transcript and returns what it printed.
func (n *narrator) run(line string) string {
	n.out.Reset()
	fields := strings.Fields(line)
	w := parseWords(fields[1:])
	switch verb := fields[0]; verb {
	case "submit":
		n.submit(fields[1:])
	case "grant":
		n.grant(w)
	case "start", "heartbeat", "ack", "complete", "fail", "release":
		n.lastJudge = lease.Judge{Tenant: n.tenant(w), Reports: []*lease.Report{n.report(verb, w)}}
		n.judge()
	case "replay":
		n.judge()
	case "requeue":
		n.requeue(w)
	case "cancel":
		n.ask(lease.Cancel{Tenant: n.tenant(w), Task: n.task(w), Reason: w.text("reason"), By: w.options["by"]})
	case "retry":
		n.ask(lease.Retry{Tenant: n.tenant(w), Task: n.task(w), Deadline: n.wall(w, "deadline"), By: w.options["by"]})
	case "delete":
		n.ask(lease.Delete{Tenant: n.tenant(w), Task: n.task(w), Force: slices.Contains(w.names, "force")})
	case "adopt":
		n.ask(lease.Adopt{Tenant: n.tenant(w), Task: n.task(w), Attempt: uint32(n.number(w, "attempt", 0)), By: w.options["by"]})
	case "unpark":
		n.step(lease.Unpark{Task: n.task(w)})
	case "lose": // a task is given up, because the worker to which it is pinned has been gone for too long
		n.step(lease.LoseResource{Task: n.task(w), Worker: w.names[1], After: time.Minute})
	case "expire":
		n.step(lease.Expire{Task: n.task(w)})
	case "stall":
		n.step(lease.Stall{Task: n.task(w), By: n.duration(w, "by")})
	case "show":
		n.show(w)
	case "history":
		n.history(w)
	case "explain":
		n.step(lease.Expire{Task: n.task(w)})
		n.explain(w)
	default:
		n.runOther(verb, w)
	}
	return n.out.String()
}

// runOther runs the commands that are not steps of the rules: on clocks, settings, limits and the
// store.
func (n *narrator) runOther(verb string, w words) {
	switch verb {
	case "advance": // moves both clocks
		d := n.parseDuration(w.names[0])
		n.now = lease.Now{Serving: n.now.Serving.Add(d), Wall: n.now.Wall.Add(d)}
		n.store.expireLedgers(n.now.Serving)
	case "jump": // moves the wall clock only
		n.now.Wall = n.now.Wall.Add(n.parseDuration(w.names[0]))
	case "queue":
		n.setQueue(w)
	case "limit":
		n.rules.Limits.Discarded = n.number(w, "discarded", n.rules.Limits.Discarded)
		n.rules.Limits.Output = n.number(w, "output", n.rules.Limits.Output)
		n.rules.Limits.Checkpoint = n.number(w, "checkpoint", n.rules.Limits.Checkpoint)
		n.rules.Limits.Stack = n.number(w, "stack", n.rules.Limits.Stack)
	case "backup":
		n.saved = n.store.backup()
	case "restore":
		n.store = n.saved.backup()
		n.newEpoch("restored", n.rules.Authority.Epoch+1)
	case "invalidate": // a start with --recovery=invalidate
		n.newEpoch("invalidated", n.rules.Authority.KnownFrom)
	case "crash":
		// the store goes back to the backup, which stands for what was durable; unlike a restore,
		// the epoch stays
		n.store = n.saved.backup()
	case "compare":
		n.compareTokens(w)
	default:
		n.t.Fatalf("unknown command %q", verb)
	}
}

// newEpoch begins the next epoch, and ends all live leases (A9, A11).
func (n *narrator) newEpoch(why string, knownFrom uint32) {
	n.rules.Authority = lease.NewAuthority(n.rules.Authority.Epoch+1, []byte("secret"))
	n.rules.Authority.KnownFrom = knownFrom
	for _, name := range n.names() {
		if t := n.store.Task(n.tasks[name]); t != nil && t.Lease != nil {
			n.step(lease.Requeue{Task: t.ID, Attempt: t.Lease.Attempt, Cause: lease.CoordinatorRecovered, Detail: why})
		}
	}
}

// names returns the names of all tasks, in the order of their ids.
func (n *narrator) names() []string {
	var names []string
	for name := range n.tasks {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(n.tasks[a].String(), n.tasks[b].String()) })
	return names
}

func (n *narrator) name(id lease.TaskID) string {
	for name, known := range n.tasks {
		if known == id {
			return name
		}
	}
	return id.String()
}

// step runs one command, then stores and prints what it changed.
func (n *narrator) step(c lease.Command) lease.Step {
	out := n.rules.Step(n.now, n.store, c)
	n.store.apply(out.Changes)
	for i := range out.Changes {
		n.printChange(&out.Changes[i])
	}
	return out
}

// ask runs a command of a producer or an operator, as step does. If the command is refused, it
// prints the error.
func (n *narrator) ask(c lease.Command) {
	out := n.step(c)
	if out.Err != nil {
		n.printRefusal(out.Err)
	}
}

// submit submits a batch of tasks: "submit t1 ttl=1s + t2".
func (n *narrator) submit(fields []string) {
	c := lease.Submit{Space: 1, Tenant: "acme", Workspace: "main"}
	var names []string
	for _, one := range strings.Split(strings.Join(fields, " "), " + ") {
		w := parseWords(strings.Fields(one))
		names = append(names, w.names[0])
		spec := n.spec(w)
		c.Specs = append(c.Specs, spec)
		// specs count as the same if their types are of the same length
		c.Digests = append(c.Digests, lease.Digest{byte(len(spec.Type))})
	}
	out := n.rules.Step(n.now, n.store, c)
	n.store.apply(out.Changes)
	if out.Err != nil {
		n.printRefusal(fmt.Errorf("spec %d: %w", out.ErrSpec, out.Err))
		return
	}
	for i, s := range out.Submitted {
		if !s.Created {
			n.printf("%s is %s of before", names[i], n.name(s.Task.ID))
			continue
		}
		n.tasks[names[i]] = s.Task.ID
		n.printf("%s is %v%s", names[i], s.Task.State(), n.wait(s.Task))
	}
}

// grant leases a task to a worker: "grant t1 w1 session=s1 request=r1 as=name". With the word
// "behind" it sets Grant.Behind.
func (n *narrator) grant(w words) {
	id := n.task(w)
	out := n.step(lease.Grant{
		Task: id, Worker: w.names[1], Session: w.options["session"],
		Request: w.options["request"], Behind: slices.Contains(w.names, "behind"),
	})
	t := n.store.Task(id)
	if t == nil || t.Lease == nil || len(out.Changes) == 0 || out.Changes[0].New.Attempt() == attemptOf(out.Changes[0].Old) {
		n.printf("not granted%s", blockNames[out.Blocked])
		return
	}
	if r := n.settings().Rate; r.PerSecond != 0 {
		n.store.bucket = r.Take(n.store.bucket, n.now.Serving)
	}
	name := w.options["as"]
	if name == "" {
		name = fmt.Sprintf("%s/%d", w.names[0], t.Lease.Attempt)
	}
	epoch := n.rules.Authority.Epoch
	n.leases[name] = n.rules.Authority.Issue(t.Tenant,
		lease.Ticket{Epoch: epoch, Task: id, Attempt: t.Lease.Attempt, Nonce: t.Lease.Nonce})
	n.printf("attempt %d, expires in %v", t.Lease.Attempt, t.ExpiresAt(n.now).Sub(n.now.Serving))
}

func attemptOf(t *lease.Task) uint32 {
	if t == nil {
		return 0
	}
	return t.Attempt()
}

// requeue takes a lease back: "requeue t1/2 cause=COORDINATOR_RECOVERED". The cause is REVOKED
// unless it is COORDINATOR_RECOVERED.
func (n *narrator) requeue(w words) {
	task, attempt, _ := strings.Cut(w.names[0], "/")
	c := lease.Requeue{Task: n.tasks[task], Attempt: uint32(n.atoi(attempt)), Cause: lease.Revoked, Detail: w.text("detail")}
	if w.options["cause"] == lease.CoordinatorRecovered.String() {
		c.Cause = lease.CoordinatorRecovered
	}
	n.step(c)
}

func (n *narrator) judge() {
	out := n.rules.Step(n.now, n.store, n.lastJudge)
	n.store.apply(out.Changes)
	n.printAnswer(out.Answers[0])
	for i := range out.Changes {
		n.printChange(&out.Changes[i])
	}
}
