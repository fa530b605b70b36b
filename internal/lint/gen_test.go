package lint

import (
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/lessor-dev/lessor/gen/lessor/v1" // registers the generated descriptors
)

// TestGenMatchesProto notices a proto file that was changed without `make generate`. It compares what the files mean: a
// changed comment passes here and is found by `make check-generate`, which needs buf.
func TestGenMatchesProto(t *testing.T) {
	for _, name := range protoNames(t) {
		generated, err := protoregistry.GlobalFiles.FindFileByPath(name)
		if err != nil {
			t.Errorf("proto/%s has no generated code, run `make generate`: %v", name, err)
			continue
		}
		if !proto.Equal(protodesc.ToFileDescriptorProto(compile(t, name)), protodesc.ToFileDescriptorProto(generated)) {
			t.Errorf("gen/ differs from proto/%s, run `make generate`", name)
		}
	}
}

// TestGenHasNothingElse notices generated code whose proto file is gone.
func TestGenHasNothingElse(t *testing.T) {
	sources := make(map[string]bool)
	for _, name := range protoNames(t) {
		sources[name] = true
	}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(file.Path(), "lessor/") && !sources[file.Path()] {
			t.Errorf("gen/ still holds %s, which is not in proto/: run `make generate`", file.Path())
		}
		return true
	})
}

// In Java and Kotlin every file has a class of its own beside those of its messages. By default it has the name of the file, as a message may have, too:
// protoc then writes the same file twice.
func TestJavaNames(t *testing.T) {
	for _, name := range protoNames(t) {
		options := protodesc.ToFileDescriptorProto(compile(t, name)).GetOptions()
		if class := options.GetJavaOuterClassname(); !options.GetJavaMultipleFiles() || !strings.HasSuffix(class, "Proto") {
			t.Errorf("proto/%s: java_multiple_files is %v and java_outer_classname %q, want true and a name that ends in Proto", name, options.GetJavaMultipleFiles(), class)
		}
	}
}

// protoNames returns the names by which the proto files import each other.
func protoNames(t *testing.T) []string {
	t.Helper()
	names := filesNamed(t, "proto", ".proto")
	for i, name := range names {
		names[i] = strings.TrimPrefix(name, "proto/")
	}
	return names
}

func compile(t *testing.T, name string) protoreflect.FileDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root + "/proto"}}),
	}
	files, err := compiler.Compile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}
