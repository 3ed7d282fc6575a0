package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// profiled is a CPU profile of one run. A nil one does nothing.
type profiled struct {
	data bytes.Buffer
	err  error // of the last start
}

func (p *profiled) start() error {
	if p == nil {
		return nil
	}
	p.data.Reset()
	p.err = pprof.StartCPUProfile(&p.data)
	return p.err
}

func (p *profiled) stop() {
	if p != nil && p.err == nil {
		pprof.StopCPUProfile()
	}
}

// restart forgets what the profile has.
func (p *profiled) restart() {
	p.stop()
	_ = p.start() // save says it
}

// save writes the profile to dir and returns what is at its top.
func (p *profiled) save(dir, id string) (top, error) {
	if p.err != nil {
		return top{}, p.err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return top{}, err
	}
	file := filepath.Join(dir, strings.ReplaceAll(id, "/", "-")+".pprof")
	if err := os.WriteFile(file, p.data.Bytes(), 0o600); err != nil {
		return top{}, err
	}
	return topOf(id, file, &p.data)
}

// top is where a run spent its CPU time.
type top struct {
	id, file  string
	total     time.Duration
	functions []function // longest first
}

// function is what ran in a function itself, without what it called.
type function struct {
	name string
	took time.Duration
}

func topOf(id, file string, data io.Reader) (top, error) {
	prof, err := profile.Parse(data)
	if err != nil {
		return top{}, err
	}
	t := top{id: id, file: file}
	took := map[string]time.Duration{}
	for _, s := range prof.Sample {
		name := "?"
		if len(s.Location) > 0 && len(s.Location[0].Line) > 0 {
			name = s.Location[0].Line[0].Function.Name // the innermost of those that are inlined
		}
		d := time.Duration(s.Value[len(s.Value)-1]) // the last value is of CPU time, in ns
		took[name] += d
		t.total += d
	}
	for name, d := range took {
		t.functions = append(t.functions, function{name, d})
	}
	slices.SortFunc(t.functions, func(a, b function) int {
		if a.took != b.took {
			return int(b.took - a.took)
		}
		return strings.Compare(a.name, b.name)
	})
	return t, nil
}

// print writes the first ten functions.
func (t top) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %v of CPU time, %s\n\n", t.id, t.total.Round(10*time.Millisecond), t.file)
	for _, f := range t.functions[:min(10, len(t.functions))] {
		fmt.Fprintf(w, "    %5.1f %%  %s\n", 100*float64(f.took)/float64(t.total), f.name)
	}
}
