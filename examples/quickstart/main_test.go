package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background(), ""); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0 42 ordered
	// 1 42 paid
	// 2 42 shipped
}
