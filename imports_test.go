package quorumlog_test

import (
	"cmp"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/quorumlog/quorumlog"
	root   = "." // the root package, as the table calls it
)

// line is one line of the import table.
type line struct {
	floor int
	pkg   string
	may   string // packages it may import, apart by spaces
}

// floors is the import table, lowest floor first. A package may import, of this
// module, exactly what its line names, and a line may name only packages above
// it in this list; so nothing calls up, and nothing goes round.
var floors = []line{
	{0, "record", ""},
	{0, "internal/vfs", ""},
	{0, "transport", "record"},
	{0, "internal/relay", ""},
	{1, "index", "record internal/vfs"},
	{1, "segment", "index record internal/vfs"},
	{2, "log", "segment index record internal/vfs"},
	{3, "internal/fold", "record"},
	{3, "internal/fold/foldtest", "record"},
	{3, "consumer/group", "internal/fold record"},
	{3, "txn/coordinator", "internal/fold record"},
	{3, "txn/half", "internal/fold record"},
	{4, "replica", "log segment record internal/vfs transport"},
	{5, "cluster", "replica log consumer/group txn/coordinator txn/half internal/fold record internal/vfs transport"},
	{6, "producer", "record"},
	{6, "consumer", "consumer/group record"},
	{6, "txn", "producer consumer consumer/group txn/coordinator txn/half record"},
	{7, root, "txn producer consumer cluster replica consumer/group txn/coordinator txn/half log segment index record internal/vfs transport"},
	{8, "internal/torture", "txn txn/coordinator producer consumer cluster replica consumer/group log segment record internal/vfs internal/relay transport"},
}

// onlyIn lists what some packages alone may import, by the beginning of the path.
var onlyIn = []struct{ imp, pkg string }{
	{"github.com/hashicorp/", "replica"},
	{"go.etcd.io/bbolt", "replica"},
}

// never lists what library code does without, and what only tests need.
var never = []string{"log", "os/signal", "github.com/stretchr/", "github.com/twmb/"}

// forbidden returns why a package of this module must not import imp in code
// that is not a test, or "".
func forbidden(pkg, imp string) string {
	own, isOwn := strings.CutPrefix(imp+"/", module+"/")
	own = cmp.Or(strings.TrimSuffix(own, "/"), root)
	if strings.HasPrefix(pkg, "examples/") {
		if isOwn && own != root {
			return "examples show the root package alone"
		}
		return ""
	}
	i := slices.IndexFunc(floors, func(l line) bool { return l.pkg == pkg })
	if i < 0 {
		return "this package has no floor yet; give it a line in the table"
	}
	if isOwn && !slices.Contains(strings.Fields(floors[i].may), own) {
		return "the table does not allow it on floor " + strconv.Itoa(floors[i].floor)
	}
	for _, o := range onlyIn {
		if strings.HasPrefix(imp, o.imp) && pkg != o.pkg {
			return "only " + o.pkg + " may"
		}
	}
	for _, n := range never {
		if imp == n || strings.HasSuffix(n, "/") && strings.HasPrefix(imp, n) {
			return "library code does without it"
		}
	}
	return ""
}

func TestEachFloorImportsOnlyWhatTheTableAllows(t *testing.T) {
	seen := make(map[string]bool)
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipUnlessOurs(file, d.Name())
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		// Parsing, unlike listing, sees the files of every operating system.
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(file))
		seen[pkg] = true
		for _, i := range f.Imports {
			imp, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if why := forbidden(pkg, imp); why != "" {
				t.Errorf("%s imports %q: %s", file, imp, why)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, seen["record"] && seen["replica"] && seen[root], "the walk has missed packages: %v", seen)
}

// skipUnlessOurs leaves out what the go command leaves out of "./...".
func skipUnlessOurs(dir, name string) error {
	if dir == "." {
		return nil
	}
	if name == "testdata" || name[0] == '.' || name[0] == '_' {
		return fs.SkipDir
	}
	if nested, _ := filepath.Glob(filepath.Join(dir, "go.mod")); nested != nil {
		return fs.SkipDir
	}
	return nil
}

func TestTheImportTableNamesOnlyWhatStandsAboveInIt(t *testing.T) {
	var above []string
	floor := 0
	for _, l := range floors {
		require.GreaterOrEqual(t, l.floor, floor, "%s is not in the order of floors", l.pkg)
		require.Subset(t, above, strings.Fields(l.may), "%s imports upwards", l.pkg)
		require.NotContains(t, above, l.pkg)
		above, floor = append(above, l.pkg), l.floor
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	for _, c := range []struct {
		pkg, imp string
		ok       bool
	}{
		{"log", module + "/segment", true},
		{"segment", module + "/log", false},
		{"replica", module + "/cluster", false},
		{"producer", module + "/cluster", false},
		{"internal/vfs", module + "/record", false},
		{"record", module, false},
		{root, module + "/cluster", true},
		{"replica", "github.com/hashicorp/raft", true},
		{"cluster", "github.com/hashicorp/raft", false},
		{root, "github.com/hashicorp/raft-boltdb/v2", false},
		{"record", "log/slog", true},
		{"record", "log", false},
		{root, "os/signal", false},
		{"record", "github.com/twmb/franz-go/pkg/kmsg", false},
		{"examples/quickstart", module, true},
		{"examples/quickstart", "log", true},
		{"examples/quickstart", module + "/record", false},
		{"newcomer", "fmt", false},
	} {
		why := forbidden(c.pkg, c.imp)
		require.Equal(t, c.ok, why == "", "%s imports %s: %q", c.pkg, c.imp, why)
	}
}
