package main

import (
	"context"
	"fmt"
)

func Example() {
	if err := run(context.Background(), false); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1000 records of 40 accounts, 8 workers at once at the most
	// out of order within an account: 0
	// accounts/0: 0 records behind
	// accounts/1: 0 records behind
}
