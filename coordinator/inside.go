package coordinator

import (
	"github.com/lessor-dev/lessor/coordinator/internal/inside"
	"github.com/lessor-dev/lessor/internal/bubble"
)

func init() {
	bubble.FakeTime = func(config any) { config.(*Config).fakeTime = true }
	inside.Of = func(coordinator any) inside.Parts {
		c := coordinator.(*Coordinator)
		return inside.Parts{
			Engine:        c.engine,
			Gate:          c.gate,
			Quotas:        c.quotas,
			Services:      c.services,
			Sessions:      c.sessions,
			SubmitLimiter: c.submitLimiter,
			GRPC:          c.grpc,
			HTTP:          c.http,
			EndCalls:      c.stopAll,
			Idle:          c.calls.none,
		}
	}
}
