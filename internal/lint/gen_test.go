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

// TestGenMatchesProto fails if a proto file was changed without `make generate`. It compares
// descriptors, so it does not see changed comments: `make check-generate` finds those, but needs
// buf.
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

// TestGenHasNothingElse fails if the proto file of generated code no longer exists.
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

// In Java and Kotlin, each proto file becomes a class beside the classes of its messages. By
// default, that class has the name of the file. If a message has the same name, protoc writes the
// same file twice.
func TestJavaNames(t *testing.T) {
	for _, name := range protoNames(t) {
		options := protodesc.ToFileDescriptorProto(compile(t, name)).GetOptions()
		if class := options.GetJavaOuterClassname(); !options.GetJavaMultipleFiles() || !strings.HasSuffix(class, "Proto") {
			t.Errorf("proto/%s: java_multiple_files is %v and java_outer_classname %q, want true and a name that ends in Proto", name, options.GetJavaMultipleFiles(), class)
		}
	}
}

// protoNames returns the proto files by the paths under which they import each other.
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
