package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"
)

// TestMain lets the test's own binary be the other nodes.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-child") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestAKilledProcessLosesNothing(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), &out, 300); err != nil {
		t.Fatal(err, "\n", out.String())
	}
	if !bytes.HasSuffix(out.Bytes(), []byte("read back: 300 records, lost 0 duplicated 0\n")) {
		t.Fatal(out.String())
	}
}
