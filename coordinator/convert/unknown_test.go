package convert

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// S4: the error about a field with the wrong wire type has its path and the type that the protos
// give it.
func TestWrongWireTypeNamesTheType(t *testing.T) {
	t.Attr("rules", "S4")
	policy, affinity, ref := &lessorv1.RetryPolicy{}, &lessorv1.Affinity{}, &lessorv1.ResourceRef{}
	queue, labels, nested, list := &lessorv1.TaskSpec{}, &lessorv1.TaskSpec{}, &lessorv1.TaskSpec{}, &lessorv1.TaskSpec{}
	for _, tt := range []struct {
		spec   *lessorv1.TaskSpec
		within proto.Message // has the field
		field  string
		want   string
	}{
		{queue, queue, "queue", "string"},
		{labels, labels, "labels", "map"},
		{nested, nested, "retry_policy", "RetryPolicy"},
		{list, list, "resource_refs", "repeated ResourceRef"},
		{&lessorv1.TaskSpec{RetryPolicy: policy}, policy, "retry_policy.non_retryable_categories", "repeated ErrorCategory"},
		{&lessorv1.TaskSpec{ResourceRefs: []*lessorv1.ResourceRef{ref}}, ref, "resource_refs[0].resource_id", "string"},
		{&lessorv1.TaskSpec{Affinity: affinity}, affinity, "affinity.mode", "AffinityMode"},
	} {
		m := tt.within.ProtoReflect()
		number := m.Descriptor().Fields().ByTextName(tt.field[strings.LastIndex(tt.field, ".")+1:]).Number()
		m.SetUnknown(protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), 1))
		bad := UnknownInSpec("task", tt.spec)
		if bad == nil || bad.Field != "task."+tt.field || !strings.HasSuffix(bad.Problem, "; its type is "+tt.want) {
			t.Errorf("%s: the error is %v, want one of this field with the type %s", tt.field, bad, tt.want)
		}
	}
}
