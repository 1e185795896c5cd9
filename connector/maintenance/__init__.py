"""a table's own metadata -> the same rows in fewer, better files: conversion of deletes, compaction, expiry."""
