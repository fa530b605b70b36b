package config

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

func TestStrays(t *testing.T) {
	parser, err := kong.New(&testFlags{}, Environment("LESSOR"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		environ []string
		want    []Stray
	}{
		"variables of flags":        {environ: []string{"LESSOR_ADDR=a", "LESSOR_DATA=", "LESSOR_WORKER_RUN_WAIT=1s", "LESSOR_CONFIG=f"}},
		"of others":                 {environ: []string{"PATH=/bin", "LESSOR=1", "LESSORS_X=1", "LESSOR_TASK_ID=t", "=C:=C:\\"}},
		"a typing mistake":          {environ: []string{"LESSOR_ADRR=a"}, want: []Stray{{"LESSOR_ADRR", "LESSOR_ADDR"}}},
		"two letters changed round": {environ: []string{"LESSOR_DTAA=a"}, want: []Stray{{"LESSOR_DTAA", "LESSOR_DATA"}}},
		"nothing like it":           {environ: []string{"LESSOR_PASSWORD=a"}, want: []Stray{{"LESSOR_PASSWORD", ""}}},
		"the bare command is named": {environ: []string{"LESSOR_SERVE_DATA=a"}, want: []Stray{{"LESSOR_SERVE_DATA", "LESSOR_DATA"}}},
		"a command is left out":     {environ: []string{"LESSOR_RUN_WAIT=a"}, want: []Stray{{"LESSOR_RUN_WAIT", ""}}},
		"only typed":                {environ: []string{"LESSOR_GET_ALL=true"}, want: []Stray{{"LESSOR_GET_ALL", ""}}},
		"several, sorted":           {environ: []string{"LESSOR_Z=", "LESSOR_Y="}, want: []Stray{{"LESSOR_Y", ""}, {"LESSOR_Z", ""}}},
		"a service of Kubernetes": {environ: []string{
			"LESSOR_SERVICE_HOST=10.0.0.1", "LESSOR_SERVICE_PORT=7420", "LESSOR_SERVICE_PORT_GRPC=7420", "LESSOR_PORT=tcp://10.0.0.1:7420",
			"LESSOR_PORT_7420_TCP_ADDR=10.0.0.1", "LESSOR_WEB_SERVICE_HOST=10.0.0.2", "LESSOR_WEB_PORT_80_TCP=tcp://10.0.0.2:80",
		}},
		"no service of Kubernetes": {environ: []string{"LESSOR_PORT=7420"}, want: []Stray{{"LESSOR_PORT", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Strays(parser.Model.Node, "LESSOR", []string{"LESSOR_TASK_ID"}, test.environ); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
