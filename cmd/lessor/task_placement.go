package main

import (
	"fmt"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// addPlacement shows which workers may take a task.
func (d details) addPlacement(s *lessorv1.TaskSpec) {
	r := s.GetRequirements()
	for _, name := range r.GetRuntimes() {
		d.add("requires", "runtime "+name)
	}
	for _, name := range r.GetFeatures() {
		d.add("requires", "feature "+name)
	}
	addEach(d, "requires", "label %s=%s", r.GetLabels())
	addEach(d, "requires", "%s of at least %g", r.GetResources())
	if r.GetPackage() != "" {
		d.add("requires", "package "+r.GetPackage())
	}
	for _, ref := range s.GetResourceRefs() {
		d.add("resource", refText(ref))
	}
	if a := s.GetAffinity(); a != nil {
		d.add("affinity", fmt.Sprintf("%s, %s, for %v", a.GetKey(), strings.ToLower(words.Name(a.GetMode())),
			a.GetTtl().AsDuration()))
	}
}

func refText(ref *lessorv1.ResourceRef) string {
	text := ref.GetResourceId() + " at worker " + ref.GetWorkerId()
	if ref.GetType() != "" {
		text += ", " + ref.GetType()
	}
	if ref.GetScope() != "" {
		text += ", for " + ref.GetScope()
	}
	if ref.GetExpiresAt() != nil {
		text += ", until " + clock(ref.GetExpiresAt())
	}
	return text
}

// addTrace shows the trace of a task, and its position among the tasks of its run.
func (d details) addTrace(t *lessorv1.Task) {
	d.add("trace", t.GetSpec().GetTraceparent())
	meta := t.GetSpec().GetTraceMeta()
	if host := meta.GetHostNodeId(); host != "" {
		d.add("mounted on", host+indexText(meta.ChainIndex))
	}
	d.add("chain", strings.Join(meta.GetMiddlewareChain(), ", "))
	for _, m := range t.GetMiddlewares() {
		text := m.GetTaskId() + indexText(m.ChainIndex) + ", " + words.Name(m.GetState())
		if m.GetTaskKey() != "" {
			text = m.GetTaskKey() + ", " + text
		}
		d.add("middleware", text)
	}
}

func indexText(index *uint32) string {
	if index == nil {
		return ""
	}
	return fmt.Sprintf(", index %d", *index)
}
