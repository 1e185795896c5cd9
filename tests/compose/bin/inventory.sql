CREATE SCHEMA inventory;
SET search_path TO inventory;
CREATE TABLE customers (
  id serial PRIMARY KEY,
  first_name varchar(255) NOT NULL,
  last_name varchar(255) NOT NULL,
  email varchar(255) NOT NULL UNIQUE
);
ALTER SEQUENCE customers_id_seq RESTART WITH 1001;
ALTER TABLE customers REPLICA IDENTITY FULL;
INSERT INTO customers (first_name, last_name, email) VALUES
  ('Sally', 'Thomas', 'sally.thomas@acme.com'), ('George', 'Bailey', 'gbailey@foobar.com'),
  ('Edward', 'Walker', 'ed@walker.com'), ('Anne', 'Kretchmar', 'annek@noanswer.org');
CREATE TABLE products (id serial PRIMARY KEY, name varchar(255) NOT NULL, description varchar(512), weight float);
INSERT INTO products (name, description, weight) VALUES
  ('scooter', 'Small 2-wheel scooter', 3.14), ('hammer', '12oz hammer', 0.75), ('rocks', NULL, 5.3);
CREATE TABLE orders (
  id serial PRIMARY KEY,
  order_date date NOT NULL,
  purchaser integer NOT NULL REFERENCES customers (id),
  quantity integer NOT NULL,
  product_id integer NOT NULL REFERENCES products (id)
);
INSERT INTO orders (order_date, purchaser, quantity, product_id) VALUES ('2016-01-16', 1001, 1, 1), ('2016-01-17', 1002, 2, 2);
