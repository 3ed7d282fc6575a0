package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog"
)

// event is one line of a dpkg log, such as
//
//	2025-06-24 14:36:25 status installed libsystemd0:amd64 252.38-1~deb12u1
type event struct {
	line   int // 1, 2, 3 … in the file: the same text may occur twice
	text   string
	time   time.Time
	pkg    string // name:architecture; "" when the line is about no package
	status string // the package's new status; "" when the line is about something else
}

func parseLog(text string) ([]event, error) {
	var events []event
	for line := range strings.Lines(text) {
		e, err := parseEvent(len(events)+1, strings.TrimRight(line, "\r\n"))
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

func parseEvent(line int, text string) (event, error) {
	f := strings.Fields(text)
	if len(f) < 5 {
		return event{}, fmt.Errorf("line %d is not of a dpkg log: %q", line, text)
	}
	at, err := time.Parse(time.DateTime, f[0]+" "+f[1])
	if err != nil {
		return event{}, fmt.Errorf("line %d is not of a dpkg log: %w", line, err)
	}
	e := event{line: line, text: text, time: at}
	switch f[2] {
	case "status":
		e.status, e.pkg = f[3], f[4]
	case "startup", "conffile": // about dpkg itself, about a file
	default:
		e.pkg = f[3]
	}
	return e, nil
}

// lineHeader carries the line number, which makes each event unique.
const lineHeader = "line"

// record returns the event as it is sent.
func (e event) record() quorumlog.Record {
	r := quorumlog.Record{
		Topic:   topic,
		Time:    e.time,
		Value:   []byte(e.text),
		Headers: []quorumlog.Header{{Key: lineHeader, Value: []byte(strconv.Itoa(e.line))}},
	}
	if e.pkg != "" {
		r.Key = []byte(e.pkg)
	}
	return r
}

// eventOf returns the event that a record carries, which must be one of events.
func eventOf(r quorumlog.Record, events []event) (event, error) {
	line := 0
	for _, h := range r.Headers {
		if h.Key == lineHeader {
			line, _ = strconv.Atoi(string(h.Value)) // zero is not a line
		}
	}
	e, err := parseEvent(line, string(r.Value))
	if err != nil || line < 1 || line > len(events) || e != events[line-1] || !r.Time.Equal(e.time) || string(r.Key) != e.pkg {
		return event{}, fmt.Errorf("partition %d holds at offset %d line %d as %q, which is not of this input; use another -dir for another input",
			r.Partition, r.Offset, line, r.Value)
	}
	return e, nil
}

// count returns how many packages the events know a status of, and how many
// of them end as installed.
func count(events []event) (packages, installed int) {
	last := make(map[string]string)
	for _, e := range events {
		if e.status != "" {
			last[e.pkg] = e.status
		}
	}
	return tally(last)
}

func tally(status map[string]string) (packages, installed int) {
	for _, s := range status {
		if s == "installed" {
			installed++
		}
	}
	return len(status), installed
}
