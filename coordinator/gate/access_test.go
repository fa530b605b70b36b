package gate

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X2: every served call has a rule, and every rule is for a served call. Operators may make every
// call that needs a credential.
func TestEveryCallHasARule(t *testing.T) {
	t.Attr("rules", "X2")
	var methods []string
	for _, service := range []*grpc.ServiceDesc{
		&lessorv1.TaskService_ServiceDesc, &lessorv1.WorkerService_ServiceDesc, &lessorv1.AdminService_ServiceDesc,
		&lessorv1.AuthService_ServiceDesc,
		&healthv1.Health_ServiceDesc, &reflectionv1.ServerReflection_ServiceDesc, &reflectionv1alpha.ServerReflection_ServiceDesc,
	} {
		for _, m := range service.Methods {
			methods = append(methods, "/"+service.ServiceName+"/"+m.MethodName)
		}
		for _, s := range service.Streams {
			methods = append(methods, "/"+service.ServiceName+"/"+s.StreamName)
		}
	}
	slices.Sort(methods)
	ruled := slices.Sorted(maps.Keys(access))
	for method := range unguarded {
		if access[method] != auth.Nobody {
			t.Errorf("%s needs no credential, but also has a rule", method)
		}
		ruled = append(ruled, method)
	}
	slices.Sort(ruled)
	if !slices.Equal(methods, ruled) {
		t.Errorf("calls %q\nrules %q", methods, ruled)
	}
	for method, roles := range access {
		if !roles.Has(auth.Operator) {
			t.Errorf("operators may not call %s", method)
		}
	}
}

// X2: docs/security.md shows these rules.
func TestTheManualShowsTheRules(t *testing.T) {
	t.Attr("rules", "X2")
	manual, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []auth.Role{auth.Worker, auth.Producer, auth.Viewer} {
		_, row, found := strings.Cut(string(manual), "\n| "+role.String()+" | ")
		row, _, _ = strings.Cut(row, " |\n")
		shown := strings.Fields(strings.ReplaceAll(row, "`", ""))
		var ruled []string
		for method, roles := range access {
			if name := path.Base(method); roles.Has(role) && name != "ServerReflectionInfo" {
				ruled = append(ruled, name)
			}
		}
		slices.Sort(shown)
		slices.Sort(ruled)
		if !found || !slices.Equal(shown, ruled) {
			t.Errorf("%v: the manual shows %q, the rules are %q", role, shown, ruled)
		}
	}
}
