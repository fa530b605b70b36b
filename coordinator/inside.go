package coordinator

import "github.com/lessor-dev/lessor/coordinator/internal/inside"

func init() {
	inside.Of = func(c any) inside.Parts { return c.(*Coordinator).parts }
}
